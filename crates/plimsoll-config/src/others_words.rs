//! Names of settings in other programs, and the settings and answers of Plimsoll.
//!
//! They decide on nothing but the text of messages.

/// Names of other programs, and the setting they stand for where a table has it. The first match
/// counts, so a name that means different settings in different tables is listed for each.
pub(crate) const NAMES: &[(&[&str], &str)] = &[
    // At the top of the file.
    (&["nbthread", "workers", "worker_threads", "worker_processes", "concurrency"], "threads"),
    (&["stats", "metrics", "prometheus", "dashboard"], "admin"),
    (&["backend", "upstream", "upstreams", "service", "services", "pool", "pools", "servers"], "clusters"),
    (&["location", "locations", "rule", "rules", "virtual_hosts", "vhosts", "ingress"], "routes"),
    // In a route.
    (&["backend", "upstream", "service", "proxy_pass", "use_backend", "default_backend", "target"], "cluster"),
    (&["path", "location", "prefix", "uri", "url"], "path_prefix"),
    (&["server_name", "hosts", "domain", "domains", "hostname", "virtual_host"], "host"),
    (&["return", "http_redirect", "https_redirect", "ssl_redirect", "force_ssl"], "redirect"),
    (&["strip_prefix", "replace_prefix", "rewrite_target"], "prefix_rewrite"),
    (&["set_header", "proxy_set_header", "request_headers_to_add"], "request_headers"),
    (&["add_header", "more_set_headers", "response_headers_to_add", "hsts"], "response_headers"),
    (&["header", "match_headers", "headers_match"], "headers"),
    (&["cookie"], "cookies"),
    (&["query_params", "query_parameters", "params", "args"], "query"),
    (&["exact", "exact_path"], "path"),
    // In a listener, and its list.
    (&["listen", "bind", "port", "host", "ip", "interface"], "address"),
    (&["frontend", "frontends", "bind", "listen", "server", "entrypoints"], "listeners"),
    (&["timeout_client", "client_timeout", "client_header_timeout", "timeout_http_request"], "header_read_timeout"),
    (&["keepalive_timeout", "timeout_http_keep_alive", "keep_alive"], "idle_timeout"),
    (&["client_max_body_size", "max_body_size", "max_request_body"], "max_body"),
    (&["large_client_header_buffers", "max_header_bytes"], "max_header_size"),
    (&["set_real_ip_from", "trusted_ips"], "trusted_proxies"),
    (&["accept_proxy", "send_proxy", "send_proxy_v2"], "proxy_protocol"),
    // In a cluster.
    (&["servers", "server", "upstreams", "upstream", "endpoints", "targets", "hosts"], "backends"),
    (&["algorithm", "balance", "lb_policy", "load_balancing_policy", "strategy"], "policy"),
    (&["max_connections", "max_conns", "maxconn", "max_requests"], "max_active_requests"),
    (&["timeout_connect", "proxy_connect_timeout", "dial_timeout"], "connect_timeout"),
    (&["timeout_server", "server_timeout", "proxy_read_timeout", "read_timeout"], "request_timeout"),
    (&["timeout_queue"], "queue_timeout"),
    (&["keepalive", "idle_connections", "pool_max_conn"], "max_idle_connections"),
    (&["idle_timeout", "keepalive_timeout"], "inactive_after"),
    (&["retry_policy"], "retry"),
    (&["outlier_detection", "passive_health_check"], "outlier"),
    (&["slowstart"], "slow_start"),
    (&["ssl", "https", "transport_socket"], "tls"),
    // In the tables of a cluster.
    (&["retries", "max_retries", "num_retries"], "max_attempts"),
    (&["rise", "healthy_threshold", "success_threshold"], "passes_to_heal"),
    (&["fall", "unhealthy_threshold", "failure_threshold"], "failures_to_refuse"),
    (&["type", "kind", "mode", "httpchk"], "check"),
    (&["max_fails", "consecutive_5xx", "consecutive_errors"], "consecutive_failures"),
    (&["base_ejection_time", "fail_timeout"], "base_ejection"),
    (&["max_ejection_percent"], "max_ejected"),
    (&["cert", "crt", "key", "cert_file", "key_file", "ssl_certificate"], "certificates"),
    (&["cert", "crt", "cert_file", "ssl_certificate"], "certificate"),
    (&["key_file", "ssl_certificate_key"], "key"),
    (&["sni", "proxy_ssl_name"], "server_name"),
    (&["ca_file", "ca_cert", "cafile", "trusted_ca"], "ca"),
    (&["verify", "ssl_verify", "insecure", "insecure_skip_verify"], "insecure_accept_any_certificate"),
    // Elsewhere.
    (&["address", "bind", "port"], "listen"),
];

/// Features of other programs that Plimsoll has elsewhere or not at all: names, a setting by which
/// the table is known, and the help.
pub(crate) const NOTES: &[(&[&str], &str, &str)] = &[
    (&["include", "includes"], "clusters", "remove it: a configuration is one file"),
    (
        &["user", "group", "daemon", "chroot", "pid", "pidfile", "pid_file", "master_process"],
        "clusters",
        "remove it: the service manager decides on user, directory and background",
    ),
    (
        &["log", "error_log", "log_level", "logging"],
        "clusters",
        "remove it: logs go to stderr, at the level in RUST_LOG; [access_log] has a line for each request",
    ),
    (
        &["maxconn", "max_connections", "worker_connections"],
        "clusters",
        "write max_connections in [[listeners]]; max_active_requests in [clusters.NAME] limits a backend",
    ),
    (&["mode"], "routes", MODE),
    (&["mode"], "max_uri", MODE),
    (&["mode"], "max_active_requests", MODE),
    (
        &["sticky", "stick_table", "cookie", "affinity", "session_affinity", "persistence", "hash_key"],
        "max_active_requests",
        "write policy = \"hash\" here, and [clusters.NAME.hash] with key = [\"cookie:session\"], or [clusters.NAME.hash.sticky]",
    ),
    (
        &["retries", "max_retries", "num_retries"],
        "max_active_requests",
        "write max_attempts in [clusters.NAME.retry]: it counts the first attempt, too",
    ),
    (
        &["cert", "crt", "key", "cert_file", "key_file", "ssl_certificate", "certificate"],
        "certificates",
        "write certificates = [{ certificate = \"a.pem\", key = \"a.key\" }]",
    ),
    (&["backup", "backups", "fallback"], "max_active_requests", BACKUP),
    (&["backup", "priority"], "locality", BACKUP),
    (
        &["check", "health", "health_check"],
        "locality",
        "write [clusters.NAME.health]: checks are the same for all backends of a cluster",
    ),
    (&["name", "id", "label"], "locality", "remove it: a backend is called by its address"),
    (
        &["max_conns", "maxconn"],
        "locality",
        "write max_active_requests in the cluster: the limit is the same for all its backends",
    ),
    (&["down", "disabled"], "locality", "remove the backend from the list, and reload"),
    (&["rate_limit", "rate_limits", "ratelimit", "limit_req", "limit_conn"], "path_prefix", RATE),
    (&["rate_limit", "rate_limits", "ratelimit", "limit_req", "limit_conn"], "max_uri", RATE),
    (&["rate_limit", "rate_limits", "ratelimit", "limit_req", "limit_conn"], "max_active_requests", RATE),
    (&["rewrite", "url_rewrite", "regex_rewrite", "replace_path"], "path_prefix", REWRITE),
    (&["status", "body"], "path_prefix", "write answer = { status = 403, body = \"...\" }"),
    (&["allow", "deny", "acl", "allowlist", "denylist"], "path_prefix", ACCESS),
    (&["allow", "deny", "acl", "allowlist", "denylist"], "max_uri", ACCESS),
    (&["headers", "set_header", "add_header", "proxy_set_header", "request_headers"], "max_active_requests", HEADERS),
    (&["compression", "gzip"], "path_prefix", BODIES),
    (&["compression", "gzip"], "max_uri", BODIES),
];

const MODE: &str =
    "remove it: Plimsoll proxies HTTP only, and a cluster's protocol is \"auto\", \"http1\" or \"http2\"";
const BACKUP: &str = "give the backups a locality of their own, and list localities in the cluster, nearest first";
const RATE: &str = "set requests_per_second in [other_customers], and customer = \"address\" in the listener";
const ACCESS: &str = "remove it: Plimsoll does not filter by address; use a firewall, or client_names with TLS";
const HEADERS: &str = "move it into [routes.request_headers] or [routes.response_headers]";
const REWRITE: &str = "write prefix_rewrite or path_rewrite: regular expressions are not known";
const BODIES: &str = "remove it: Plimsoll passes bodies on as they are";
