//! Parses a request's method, path and query. Does no I/O.

use std::time::Duration;

use hyper::Method;
use nudge_protocol::settings::parse_time;
use percent_encoding::percent_decode_str;

use super::RequestRefusal;

/// The formats of the whole dictionary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfigFormat {
    /// A JSON object.
    Json,
    /// Lines for a shell.
    Env,
}

/// A call of the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Call {
    /// A read of the whole dictionary, perhaps not before it changes.
    Config {
        /// The format of the reply.
        format: ConfigFormat,
        /// The maximum wait of the reply for a new dictionary.
        wait: Option<Duration>,
        /// The version of the candidate to return in place of the served dictionary.
        candidate: Option<String>,
    },
    /// A read of one value.
    Value(String),
    /// A read of the status.
    Status,
    /// A read of the webhooks.
    ListHooks,
    /// A new webhook.
    AddHook,
    /// The removal of a webhook.
    RemoveHook(String),
    /// A check whether the process is alive.
    Healthz,
    /// A check whether there is a dictionary to serve.
    Readyz,
    /// A read of the metrics for Prometheus.
    Metrics,
}

impl Call {
    /// Returns whether anyone may ask, without a token and from outside the pod.
    pub fn is_public(&self) -> bool {
        matches!(self, Self::Healthz | Self::Readyz | Self::Metrics)
    }
}

/// Reads the parts of a request line.
pub fn route(method: &Method, path: &str, query: Option<&str>) -> Result<Call, RequestRefusal> {
    let require_read = |call| match *method {
        Method::GET | Method::HEAD => Ok(call),
        _ => Err(RequestRefusal::MethodNotAllowed("GET, HEAD")),
    };
    let call = match path {
        "/config" => require_read(parse_config_query(query)?),
        "/status" => require_read(Call::Status),
        "/healthz" => require_read(Call::Healthz),
        "/readyz" => require_read(Call::Readyz),
        "/metrics" => require_read(Call::Metrics),
        "/hooks" => match *method {
            Method::GET | Method::HEAD => Ok(Call::ListHooks),
            Method::POST => Ok(Call::AddHook),
            _ => Err(RequestRefusal::MethodNotAllowed("GET, HEAD, POST")),
        },
        _ => {
            if let Some(key) = path.strip_prefix("/config/") {
                require_read(Call::Value(decode_percent(key)?))
            } else if let Some(id) = path.strip_prefix("/hooks/") {
                match *method {
                    Method::DELETE => Ok(Call::RemoveHook(decode_percent(id)?)),
                    _ => Err(RequestRefusal::MethodNotAllowed("DELETE")),
                }
            } else {
                Err(RequestRefusal::NoSuchPath)
            }
        }
    }?;
    if !matches!(call, Call::Config { .. }) && query.is_some_and(|query| !query.is_empty()) {
        return Err(RequestRefusal::BadRequest("this path takes no query".to_owned()));
    }
    Ok(call)
}

fn parse_config_query(query: Option<&str>) -> Result<Call, RequestRefusal> {
    let (mut format, mut wait, mut candidate) = (ConfigFormat::Json, None, None);
    for pair in query.unwrap_or("").split('&').filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some(("format", "json")) => format = ConfigFormat::Json,
            Some(("format", "env")) => format = ConfigFormat::Env,
            Some(("format", _)) => {
                return Err(RequestRefusal::BadRequest("'format' must be json or env".to_owned()));
            }
            Some(("wait", text)) => {
                let refusal =
                    || RequestRefusal::BadRequest("'wait' must be a number with ms, s or m, such as 30s".to_owned());
                wait = Some(parse_time(text).ok_or_else(refusal)?);
            }
            Some(("candidate", version)) => candidate = Some(decode_percent(version)?),
            _ => {
                let message = "the query may have 'format', 'wait' and 'candidate' only";
                return Err(RequestRefusal::BadRequest(message.to_owned()));
            }
        }
    }
    if candidate.is_some() && wait.is_some() {
        return Err(RequestRefusal::BadRequest("a candidate can't be waited for; leave out 'wait'".to_owned()));
    }
    Ok(Call::Config { format, wait, candidate })
}

fn decode_percent(part: &str) -> Result<String, RequestRefusal> {
    let text = percent_decode_str(part).decode_utf8();
    text.map(std::borrow::Cow::into_owned).map_err(|_| RequestRefusal::BadRequest("the path is not UTF-8".to_owned()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn get(target: &str) -> Result<Call, RequestRefusal> {
        let (path, query) = target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
        route(&Method::GET, path, query)
    }

    #[test]
    fn every_call_of_the_table() {
        let json = |wait| Call::Config { format: ConfigFormat::Json, wait, candidate: None };
        assert_eq!(get("/config"), Ok(json(None)));
        let lines = |candidate: Option<&str>| Call::Config {
            format: ConfigFormat::Env,
            wait: None,
            candidate: candidate.map(str::to_owned),
        };
        assert_eq!(get("/config?format=env"), Ok(lines(None)));
        assert_eq!(get("/config?candidate=1.0%2E1&format=env"), Ok(lines(Some("1.0.1"))));
        assert!(get("/config?candidate=1&wait=1s").is_err());
        assert_eq!(get("/config?wait=30s"), Ok(json(Some(Duration::from_secs(30)))));
        assert_eq!(get("/config?wait=250ms&format=json"), Ok(json(Some(Duration::from_millis(250)))));
        assert_eq!(get("/config?wait=2m"), Ok(json(Some(Duration::from_mins(2)))));
        assert_eq!(get("/config/game.properties"), Ok(Call::Value("game.properties".into())));
        assert_eq!(get("/config/a%2Eb"), Ok(Call::Value("a.b".into())));
        assert_eq!(get("/status"), Ok(Call::Status));
        assert_eq!(get("/hooks"), Ok(Call::ListHooks));
        assert_eq!(route(&Method::POST, "/hooks", None), Ok(Call::AddHook));
        assert_eq!(route(&Method::DELETE, "/hooks/x", None), Ok(Call::RemoveHook("x".into())));
        for path in ["/healthz", "/readyz", "/metrics"] {
            assert!(get(path).unwrap().is_public());
        }
    }

    #[test]
    fn what_is_out_of_bounds_is_refused_with_its_own_status() {
        for (target, status) in [
            ("/", 404),
            ("/configs", 404),
            ("/config/%ff", 400),
            ("/config?format=xml", 400),
            ("/config?wait=30", 400),
            ("/config?wait=s", 400),
            ("/config?wait=-1s", 400),
            ("/config?wait=99999999999s", 400),
            ("/config?x=1", 400),
            ("/status?x", 400),
        ] {
            assert_eq!(get(target).unwrap_err().status(), status, "{target}");
        }
        for (method, path) in
            [(Method::POST, "/config"), (Method::PUT, "/hooks"), (Method::GET, "/hooks/x"), (Method::DELETE, "/status")]
        {
            assert_eq!(route(&method, path, None).unwrap_err().status(), 405, "{path}");
        }
    }

    proptest! {
        #[test]
        fn only_the_three_health_paths_are_public(path in "/\\PC{0,30}", query in proptest::option::of("\\PC{0,20}")) {
            if let Ok(call) = route(&Method::GET, &path, query.as_deref()) {
                let public = ["/healthz", "/readyz", "/metrics"].contains(&path.as_str());
                prop_assert_eq!(call.is_public(), public);
            }
        }
    }
}
