//! The tokens of the page. The token of the address can be exchanged, once and in time, for the token of the session.

use std::fmt;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::rand::{SecureRandom as _, SystemRandom};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// How long the token of the address is valid.
pub(crate) const EXCHANGE_TIMEOUT: Duration = Duration::from_mins(1);

/// The size of a token: 256 bits.
const TOKEN_BYTES: usize = 32;

/// A random token, which is never printed by accident.
struct LinkToken(Zeroizing<String>);

impl LinkToken {
    fn random() -> Option<Self> {
        let mut bytes = Zeroizing::new([0; TOKEN_BYTES]);
        SystemRandom::new().fill(&mut *bytes).ok()?;
        Some(Self(Zeroizing::new(BASE64_URL_SAFE_NO_PAD.encode(*bytes))))
    }

    /// Returns whether the text is the token. Every text of the same length takes the same time.
    fn equals(&self, offered: &str) -> bool {
        self.0.as_bytes().ct_eq(offered.as_bytes()).into()
    }
}

impl fmt::Debug for LinkToken {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token")
    }
}

/// A refusal to exchange a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenRefusal {
    /// The text is not the token.
    Wrong,
    /// The token was exchanged before.
    Used,
    /// The token has expired.
    Late,
}

impl TokenRefusal {
    /// Returns the message of the page.
    pub(crate) fn message(self) -> &'static str {
        match self {
            Self::Wrong => "this is not the address that kubectl nudge ui printed",
            Self::Used => {
                "this address was opened before, and works once; if that was not you, stop the command; run kubectl nudge ui again"
            }
            Self::Late => "this address was valid for a minute; run kubectl nudge ui again",
        }
    }
}

/// The two tokens of a page.
#[derive(Debug)]
pub(crate) struct Access {
    /// The token in the fragment of the address.
    first: LinkToken,
    is_used: bool,
    expires: Instant,
    /// The token in a header of every request.
    session: LinkToken,
}

impl Access {
    /// Makes two random tokens. Returns `None` if the system has no randomness.
    pub(crate) fn new(now: Instant) -> Option<Self> {
        Some(Self {
            first: LinkToken::random()?,
            is_used: false,
            expires: now + EXCHANGE_TIMEOUT,
            session: LinkToken::random()?,
        })
    }

    /// Returns the token of the address.
    pub(crate) fn first(&self) -> &str {
        &self.first.0
    }

    /// Returns whether the token of the address was exchanged.
    pub(crate) fn is_used(&self) -> bool {
        self.is_used
    }

    /// Exchanges the token of the address for the token of the session.
    pub(crate) fn exchange(&mut self, offered: &str, now: Instant) -> Result<&str, TokenRefusal> {
        if !self.first.equals(offered) {
            return Err(TokenRefusal::Wrong);
        }
        if self.is_used {
            return Err(TokenRefusal::Used);
        }
        if now >= self.expires {
            return Err(TokenRefusal::Late);
        }
        self.is_used = true;
        Ok(&self.session.0)
    }

    /// Returns whether this is the token of the session, after the exchange.
    pub(crate) fn admits(&self, offered: &str) -> bool {
        self.session.equals(offered) && self.is_used
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access() -> (Access, String, Instant) {
        let now = Instant::now();
        let access = Access::new(now).unwrap();
        let first = access.first().to_owned();
        (access, first, now)
    }

    #[test]
    fn a_token_is_exchanged_once() {
        let (mut access, first, now) = access();
        let session = access.exchange(&first, now).unwrap().to_owned();
        assert!(access.admits(&session) && access.is_used());
        assert_eq!(access.exchange(&first, now), Err(TokenRefusal::Used));
        assert!(!access.admits(&first) && !access.admits("") && !access.admits(&session[1..]));
    }

    #[test]
    fn a_token_is_valid_for_a_minute() {
        let (mut access, first, now) = access();
        assert_eq!(access.exchange(&first, now + EXCHANGE_TIMEOUT), Err(TokenRefusal::Late));
        assert!(access.exchange(&first, now + EXCHANGE_TIMEOUT.saturating_sub(Duration::from_nanos(1))).is_ok());
    }

    #[test]
    fn another_token_says_nothing_and_uses_nothing_up() {
        let (mut access, first, now) = access();
        let session = access.session.0.to_string();
        for wrong in ["", "x", &first[1..], &format!("{first}x"), &session] {
            assert_eq!(access.exchange(wrong, now), Err(TokenRefusal::Wrong), "{wrong:?}");
        }
        assert_eq!(access.exchange("x", now + EXCHANGE_TIMEOUT), Err(TokenRefusal::Wrong));
        assert!(!access.admits(&session), "nobody has it yet");
        assert!(access.exchange(&first, now).is_ok());
        assert_eq!(access.exchange("x", now), Err(TokenRefusal::Wrong));
    }

    #[test]
    fn tokens_have_256_bits_and_differ() {
        let (one, first, _) = access();
        let (_, other, _) = self::access();
        assert_eq!(BASE64_URL_SAFE_NO_PAD.decode(&first).unwrap().len(), TOKEN_BYTES);
        assert!(first != other && first != *one.session.0);
        assert!(!format!("{one:?}").contains(&first));
    }
}
