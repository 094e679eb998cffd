//! The messages of xDS that EDS needs, as protocol buffers. Fields without use here are left out.
//!
//! Lists are not fields of these messages. [`super::repeated`] walks over them.

use prost::Message;

/// The method of aggregated discovery.
pub(super) const STREAM: &str = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources";
/// The type of the resources.
pub(super) const ASSIGNMENT: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// A resource with its name, around another.
pub(super) const WRAPPER: &str = "type.googleapis.com/envoy.service.discovery.v3.Resource";

#[derive(Clone, PartialEq, Message)]
pub(super) struct DiscoveryRequest {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(message, optional, tag = "2")]
    pub(super) node: Option<Node>,
    #[prost(string, repeated, tag = "3")]
    pub(super) resource_names: Vec<String>,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) response_nonce: String,
    #[prost(message, optional, tag = "6")]
    pub(super) error_detail: Option<Status>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Node {
    #[prost(string, tag = "1")]
    pub(super) id: String,
    #[prost(string, tag = "2")]
    pub(super) cluster: String,
    #[prost(string, tag = "6")]
    pub(super) user_agent_name: String,
    #[prost(string, tag = "7")]
    pub(super) user_agent_version: String,
}

/// `google.rpc.Status`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Status {
    #[prost(int32, tag = "1")]
    pub(super) code: i32,
    #[prost(string, tag = "2")]
    pub(super) message: String,
}

/// A `DiscoveryResponse` without its resources.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct ResponseHead {
    #[prost(string, tag = "1")]
    pub(super) version_info: String,
    #[prost(string, tag = "4")]
    pub(super) type_url: String,
    #[prost(string, tag = "5")]
    pub(super) nonce: String,
}

impl ResponseHead {
    /// The field of the resources.
    pub(super) const RESOURCES: u32 = 2;
}

/// `google.protobuf.Any`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Any {
    #[prost(string, tag = "1")]
    pub(super) type_url: String,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: bytes::Bytes,
}

/// `envoy.service.discovery.v3.Resource`. Without a resource it only extends a lifetime.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Wrapper {
    #[prost(message, optional, tag = "2")]
    pub(super) resource: Option<Any>,
}

/// A `ClusterLoadAssignment` without its endpoints.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct AssignmentHead {
    #[prost(string, tag = "1")]
    pub(super) cluster_name: String,
    #[prost(message, optional, tag = "4")]
    pub(super) policy: Option<Policy>,
}

impl AssignmentHead {
    /// The field of the localities.
    pub(super) const LOCALITIES: u32 = 2;
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Policy {
    /// The last of the shares of requests to drop. Its presence is of interest only.
    #[prost(message, optional, tag = "2")]
    pub(super) drop_overloads: Option<Empty>,
}

#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct Empty {}

/// A `LocalityLbEndpoints` without its endpoints.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LocalityHead {
    #[prost(message, optional, tag = "1")]
    pub(super) locality: Option<Locality>,
    #[prost(message, optional, tag = "3")]
    pub(super) load_balancing_weight: Option<UInt32>,
    #[prost(uint32, tag = "5")]
    pub(super) priority: u32,
    /// A list in another form.
    #[prost(message, optional, tag = "7")]
    pub(super) load_balancer_endpoints: Option<Empty>,
    /// A list in a resource of its own.
    #[prost(message, optional, tag = "8")]
    pub(super) leds_cluster_locality_config: Option<Empty>,
}

impl LocalityHead {
    /// The field of the endpoints.
    pub(super) const ENDPOINTS: u32 = 2;
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Locality {
    #[prost(string, tag = "1")]
    pub(super) region: String,
    #[prost(string, tag = "2")]
    pub(super) zone: String,
}

/// `google.protobuf.UInt32Value`.
#[derive(Clone, Copy, PartialEq, Eq, Message)]
pub(super) struct UInt32 {
    #[prost(uint32, tag = "1")]
    pub(super) value: u32,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct LbEndpoint {
    #[prost(message, optional, tag = "1")]
    pub(super) endpoint: Option<EndpointMessage>,
    #[prost(int32, tag = "2")]
    pub(super) health_status: i32,
    #[prost(message, optional, tag = "4")]
    pub(super) load_balancing_weight: Option<UInt32>,
}

/// `envoy.config.endpoint.v3.Endpoint`.
#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct EndpointMessage {
    #[prost(message, optional, tag = "1")]
    pub(super) address: Option<Address>,
    #[prost(string, tag = "3")]
    pub(super) hostname: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Address {
    #[prost(message, optional, tag = "1")]
    pub(super) socket_address: Option<SocketAddress>,
    #[prost(message, optional, tag = "2")]
    pub(super) pipe: Option<Pipe>,
    #[prost(message, optional, tag = "3")]
    pub(super) envoy_internal_address: Option<Empty>,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct SocketAddress {
    #[prost(string, tag = "2")]
    pub(super) address: String,
    #[prost(uint32, tag = "3")]
    pub(super) port_value: u32,
    #[prost(string, tag = "4")]
    pub(super) named_port: String,
}

#[derive(Clone, PartialEq, Eq, Message)]
pub(super) struct Pipe {
    #[prost(string, tag = "1")]
    pub(super) path: String,
}
