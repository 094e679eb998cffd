//! Responses and assignments with their lists, as a control plane writes them.

use bytes::Bytes;
use prost::Message;

use super::super::message::{
    ASSIGNMENT, Address, Any, Empty, EndpointMessage, LbEndpoint, Locality, Policy, SocketAddress, UInt32,
};

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct Response {
    #[prost(string, tag = "1")]
    pub(in super::super) version_info: String,
    #[prost(message, repeated, tag = "2")]
    pub(in super::super) resources: Vec<Any>,
    #[prost(string, tag = "4")]
    pub(in super::super) type_url: String,
    #[prost(string, tag = "5")]
    pub(in super::super) nonce: String,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct Assignment {
    #[prost(string, tag = "1")]
    pub(in super::super) cluster_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(in super::super) endpoints: Vec<Localities>,
    #[prost(message, optional, tag = "4")]
    pub(in super::super) policy: Option<Policy>,
}

#[derive(Clone, PartialEq, Message)]
pub(in super::super) struct Localities {
    #[prost(message, optional, tag = "1")]
    pub(in super::super) locality: Option<Locality>,
    #[prost(message, repeated, tag = "2")]
    pub(in super::super) lb_endpoints: Vec<LbEndpoint>,
    #[prost(message, optional, tag = "3")]
    pub(in super::super) load_balancing_weight: Option<UInt32>,
    #[prost(uint32, tag = "5")]
    pub(in super::super) priority: u32,
    #[prost(message, optional, tag = "8")]
    pub(in super::super) leds_cluster_locality_config: Option<Empty>,
}

/// A response with these resources. Its nonce is its version with an `n`.
pub(in super::super) fn response(version: &str, resources: &[Any]) -> Response {
    Response {
        version_info: version.to_owned(),
        resources: resources.to_vec(),
        type_url: ASSIGNMENT.to_owned(),
        nonce: format!("n{version}"),
    }
}

pub(in super::super) fn any(assignment: &Assignment) -> Any {
    Any { type_url: ASSIGNMENT.to_owned(), value: assignment.encode_to_vec().into() }
}

pub(in super::super) fn assignment(service: &str, endpoints: Vec<Localities>) -> Assignment {
    Assignment { cluster_name: service.to_owned(), endpoints, policy: None }
}

/// The service `web` with these addresses in one locality.
pub(in super::super) fn web(addresses: &[&str]) -> Any {
    any(&assignment("web", vec![locality("", addresses)]))
}

/// Endpoints in a zone of the region `east`, or in no locality.
pub(in super::super) fn locality(zone: &str, addresses: &[&str]) -> Localities {
    let locality = Locality { region: "east".to_owned(), zone: zone.to_owned() };
    Localities {
        locality: (!zone.is_empty()).then_some(locality),
        lb_endpoints: addresses.iter().map(|address| endpoint(address)).collect(),
        ..Localities::default()
    }
}

/// An endpoint by `ADDRESS:PORT`.
pub(in super::super) fn endpoint(address: &str) -> LbEndpoint {
    let (address, port) = address.rsplit_once(':').unwrap();
    let socket_address =
        SocketAddress { address: address.to_owned(), port_value: port.parse().unwrap(), named_port: String::new() };
    let address = Address { socket_address: Some(socket_address), ..Address::default() };
    let endpoint = EndpointMessage { address: Some(address), hostname: String::new() };
    LbEndpoint { endpoint: Some(endpoint), ..LbEndpoint::default() }
}

/// `message` in the frame of gRPC.
pub(in super::super) fn framed(message: &[u8]) -> Bytes {
    let length = u32::try_from(message.len()).unwrap();
    [&[0], &length.to_be_bytes()[..], message].concat().into()
}
