//! The claims of a token. The signature is not checked here. So claims may be a reason to refuse a token without a
//! review by the API server, but never a reason to accept it.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use nudge_core::keys::PodUid;
use nudge_protocol::bounded_text::one_line;
use nudge_protocol::hex::hex;
use nudge_protocol::pod::TOKEN_AUDIENCE;
use serde::Deserialize;

use super::reviewer::{Caller, send_mounted_token};
use super::token_hash::TokenHash;

/// The maximum bytes of a token: more than a request's head holds.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// The maximum bytes of a name or id: no name of Kubernetes is longer.
const MAX_NAME_BYTES: usize = 253;
/// The period after a token's expiry during which the API server still accepts it, since clocks differ.
const EXPIRY_GRACE_PERIOD: Duration = Duration::from_mins(1);

/// The claims of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Claims {
    /// The pod that the token is bound to.
    pub(super) caller: Caller,
    /// The end of the token, since 1970.
    pub(super) expires: Duration,
    /// The token's id, as the API server has it in its audit log; absent before 1.29.
    id: Option<String>,
}

/// The reason to refuse a token without a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimsError {
    Length,
    Unreadable,
    Audience,
    Unbound,
    Expired,
}

impl ClaimsError {
    /// Returns the message, including the remedy.
    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Length => send_mounted_token!("the token is empty or too long"),
            Self::Unreadable => send_mounted_token!("the token is not one of a service account"),
            Self::Audience => send_mounted_token!("the token is not for the audience nudge"),
            Self::Unbound => send_mounted_token!("the token is not bound to a pod"),
            Self::Expired => "the token has expired; read the mounted one again, and compare the clocks of the nodes",
        }
    }
}

#[derive(Deserialize)]
struct Payload {
    aud: Option<Audiences>,
    exp: u64,
    jti: Option<String>,
    #[serde(rename = "kubernetes.io")]
    binding: Option<Binding>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Audiences {
    One(String),
    Many(Vec<String>),
}

#[derive(Deserialize)]
struct Binding {
    namespace: String,
    pod: Option<NamedObject>,
    serviceaccount: Option<NamedObject>,
}

#[derive(Deserialize)]
struct NamedObject {
    name: String,
    #[serde(default)]
    uid: String,
}

impl Claims {
    /// Parses the claims of a token that is used at `now`.
    pub(super) fn parse(token: &str, now: SystemTime) -> Result<Self, ClaimsError> {
        if token.is_empty() || token.len() > MAX_TOKEN_BYTES {
            return Err(ClaimsError::Length);
        }
        let mut parts = token.split('.');
        let (Some(_), Some(payload), Some(_), None) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
            return Err(ClaimsError::Unreadable);
        };
        let json = URL_SAFE_NO_PAD.decode(payload).map_err(|_| ClaimsError::Unreadable)?;
        let payload: Payload = serde_json::from_slice(&json).map_err(|_| ClaimsError::Unreadable)?;
        let is_for_hub = payload.aud.is_some_and(|audiences| match audiences {
            Audiences::One(audience) => audience == TOKEN_AUDIENCE,
            Audiences::Many(audiences) => audiences.iter().any(|audience| audience == TOKEN_AUDIENCE),
        });
        if !is_for_hub {
            return Err(ClaimsError::Audience);
        }
        let binding = payload.binding.ok_or(ClaimsError::Unbound)?;
        let (pod, account) = binding.pod.zip(binding.serviceaccount).ok_or(ClaimsError::Unbound)?;
        let is_name = |name: &String| !name.is_empty() && one_line(name, MAX_NAME_BYTES) == *name;
        if ![&binding.namespace, &pod.name, &pod.uid, &account.name, &account.uid].into_iter().all(is_name) {
            return Err(ClaimsError::Unbound);
        }
        let expires = Duration::from_secs(payload.exp);
        if expires.saturating_add(EXPIRY_GRACE_PERIOD) <= now.duration_since(UNIX_EPOCH).unwrap_or_default() {
            return Err(ClaimsError::Expired);
        }
        let caller = Caller {
            namespace: binding.namespace,
            name: pod.name,
            uid: PodUid::new(&pod.uid).ok_or(ClaimsError::Unbound)?,
            service_account: account.name,
            account_uid: account.uid,
        };
        Ok(Self { caller, expires, id: payload.jti.filter(is_name) })
    }

    /// Returns the token's name in the audit trail: its id, or else the beginning of its SHA-256. The name is useless
    /// as a token.
    pub(super) fn token_id(&self, hash: &TokenHash) -> String {
        self.id.clone().unwrap_or_else(|| format!("sha256:{}", hex(&hash[..8])))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    type Change = fn(&mut Value);

    /// The claims of a token of pod `web`, as the API server writes them.
    pub(in crate::callers) fn sample(uid: &str, expires: u64) -> Value {
        json!({
            "aud": ["nudge"], "exp": expires, "iat": 1, "nbf": 1, "iss": "https://kubernetes.default.svc", "jti": "id-1",
            "kubernetes.io": {"namespace": "ns", "node": {"name": "n", "uid": "m"}, "pod": {"name": "web", "uid": uid},
                              "serviceaccount": {"name": "app", "uid": "s"}, "warnafter": 2},
            "sub": "system:serviceaccount:ns:app",
        })
    }

    pub(in crate::callers) fn token(claims: &Value) -> String {
        format!("e30.{}.c2ln", URL_SAFE_NO_PAD.encode(claims.to_string()))
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    fn read(change: impl FnOnce(&mut Value)) -> Result<Claims, ClaimsError> {
        let mut claims = sample("u", 1000);
        change(&mut claims);
        Claims::parse(&token(&claims), at(900))
    }

    #[test]
    fn a_pods_token_names_its_pod() {
        let claims = read(|_| ()).unwrap();
        let (namespace, name, uid) = ("ns".into(), "web".into(), PodUid::new("u").unwrap());
        let caller = Caller { namespace, name, uid, service_account: "app".into(), account_uid: "s".into() };
        assert_eq!((&claims.caller, claims.expires.as_secs()), (&caller, 1000));
        assert_eq!(claims.token_id(&[0xab; 32]), "id-1");
        let without = read(|claims| claims["jti"] = json!(null)).unwrap();
        assert_eq!(without.token_id(&[0xab; 32]), "sha256:abababababababab");
        assert!(read(|claims| claims["aud"] = json!("nudge")).is_ok());
    }

    #[test]
    fn anything_less_is_refused_by_its_own_reason() {
        use ClaimsError::{Audience, Expired, Length, Unbound, Unreadable};
        let changes: [(Change, ClaimsError); 15] = [
            (|claims| claims["aud"] = json!(["https://kubernetes.default.svc"]), Audience),
            (|claims| claims["aud"] = json!([]), Audience),
            (|claims| claims["aud"] = json!("nudges"), Audience),
            (|claims| drop(claims.as_object_mut().unwrap().remove("aud")), Audience),
            (|claims| claims["aud"] = json!({"nudge": true}), Unreadable),
            (|claims| claims["exp"] = json!("soon"), Unreadable),
            (|claims| claims["exp"] = json!(-1), Unreadable),
            (|claims| claims["kubernetes.io"] = json!(null), Unbound),
            (|claims| claims["kubernetes.io"]["pod"] = json!(null), Unbound),
            (|claims| claims["kubernetes.io"]["pod"]["uid"] = json!(""), Unbound),
            (|claims| claims["kubernetes.io"]["pod"]["name"] = json!("web\u{1b}[2J"), Unbound),
            (|claims| claims["kubernetes.io"]["namespace"] = json!("n".repeat(300)), Unbound),
            (|claims| claims["kubernetes.io"]["serviceaccount"] = json!(null), Unbound),
            (|claims| claims["kubernetes.io"]["serviceaccount"] = json!({"name": "app"}), Unbound),
            (|claims| claims["exp"] = json!(840), Expired),
        ];
        for (index, (change, error)) in changes.into_iter().enumerate() {
            assert_eq!(read(change), Err(error), "{index}");
        }
        assert!(read(|claims| claims["exp"] = json!(841)).is_ok(), "the API server accepts it for a minute more");
        for (text, error) in
            [("", Length), ("opaque", Unreadable), ("a.b", Unreadable), ("a.!.c", Unreadable), ("a.b.c.d", Unreadable)]
        {
            assert_eq!(Claims::parse(text, at(0)), Err(error), "{text}");
        }
        assert_eq!(Claims::parse(&"a".repeat(MAX_TOKEN_BYTES + 1), at(0)), Err(Length));
        let nested = format!("e30.{}.c", URL_SAFE_NO_PAD.encode("[".repeat(10_000)));
        assert_eq!(Claims::parse(&nested, at(0)), Err(Unreadable));
    }

    proptest! {
        #[test]
        fn no_token_makes_it_panic(token in "\\PC{0,60}", payload in "\\PC{0,60}") {
            let _ = Claims::parse(&token, at(0));
            let _ = Claims::parse(&format!("e30.{}.c", URL_SAFE_NO_PAD.encode(payload)), at(0));
        }
    }
}
