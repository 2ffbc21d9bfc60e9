//! Environment variables of the application's containers.

/// The URL of the dictionary, such as `https://10.0.0.7:9001/config`; an IPv6 address is in brackets.
pub const ENDPOINT: &str = "MY_CONFIG_ENDPOINT";
/// The pod's token. An empty one counts as absent: read [`TOKEN_FILE`] then.
pub const TOKEN: &str = "MY_CONFIG_TOKEN";
/// The path of a file that holds the pod's token, without a newline.
pub const TOKEN_FILE: &str = "MY_CONFIG_TOKEN_FILE";
/// The path of the certificate (PEM) of the pod's own authority: the one trust anchor for [`ENDPOINT`].
pub const CERT: &str = "MY_CONFIG_CERT";
/// The container's own name, to send in the header [`crate::headers::CONTAINER`].
pub const CONTAINER: &str = "MY_CONFIG_CONTAINER";

/// The default port of the endpoint.
pub const DEFAULT_PORT: u16 = 9001;
/// The path of the dictionary under the endpoint's origin.
pub const CONFIG_PATH: &str = "/config";
