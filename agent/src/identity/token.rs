//! The pod's token: 256 random bits, never logged, compared in constant time.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::TryRng;
use rand::rngs::SysRng;
use subtle::ConstantTimeEq;
use zeroize::Zeroizing;

/// The length of the token, in bytes.
const TOKEN_BYTES: usize = 32;
/// The length of the token's text, in bytes.
const TEXT_BYTES: usize = TOKEN_BYTES.div_ceil(3) * 4;

/// The reason why there is no token.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The operating system gave no random bytes.
    #[error("the operating system gave no random bytes for the token")]
    Random(#[source] rand::rngs::SysError),
    /// A stored token is malformed.
    #[error("the token is not the base64 of {TOKEN_BYTES} bytes")]
    Malformed,
}

/// The token as the text that clients send, standard base64. Wiped on drop.
#[derive(Clone)]
pub struct Token(Zeroizing<String>);

impl Token {
    /// Makes a new token from the operating system's random bytes.
    pub fn generate() -> Result<Self, TokenError> {
        let mut bytes = Zeroizing::new([0u8; TOKEN_BYTES]);
        SysRng.try_fill_bytes(&mut *bytes).map_err(TokenError::Random)?;
        let mut text = Zeroizing::new(String::with_capacity(TEXT_BYTES));
        STANDARD.encode_string(bytes.as_slice(), &mut text);
        Ok(Self(text))
    }

    /// Reads the text of a stored token; white space around it does not count.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        let bytes = Zeroizing::new(STANDARD.decode(text).map_err(|_| TokenError::Malformed)?);
        if bytes.len() != TOKEN_BYTES {
            return Err(TokenError::Malformed);
        }
        Ok(Self(Zeroizing::new(text.to_owned())))
    }

    /// Returns the text that clients send, which must not be logged.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// Returns the decoded bytes: the secret of webhook signatures.
    pub fn secret(&self) -> Zeroizing<Vec<u8>> {
        // The text was made, or checked, by this type.
        Zeroizing::new(STANDARD.decode(self.0.as_bytes()).unwrap_or_default())
    }

    /// Returns whether the value of the header `Authorization` is this token: `Bearer <token>` or the bare token. The
    /// time that this takes reveals nothing about the token.
    pub fn authorizes(&self, authorization: &[u8]) -> bool {
        let token = match authorization.split_at_checked(7) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"Bearer ") => rest.trim_ascii_start(),
            _ => authorization,
        };
        token.trim_ascii_end().ct_eq(self.0.as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("Token(redacted)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_256_bits_of_standard_base64_and_no_two_are_alike() {
        let (first, second) = (Token::generate().unwrap(), Token::generate().unwrap());
        assert_eq!(first.expose().len(), TEXT_BYTES);
        assert_eq!(first.secret().len(), TOKEN_BYTES);
        assert_ne!(first.expose(), second.expose());
        assert_eq!(Token::parse(&format!("{}\n", first.expose())).unwrap().expose(), first.expose());
        assert!(!format!("{first:?}").contains(first.expose()));
    }

    #[test]
    fn a_malformed_token_is_refused() {
        for bad in ["", "abc", "!!!!", &STANDARD.encode([0; 31]), &STANDARD.encode([0; 33])] {
            assert!(Token::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn bearer_and_bare_are_accepted_and_nothing_else() {
        let token = Token::generate().unwrap();
        let text = token.expose();
        for good in [text.to_owned(), format!("Bearer {text}"), format!("bearer  {text}"), format!("Bearer {text} ")] {
            assert!(token.authorizes(good.as_bytes()), "{}", good.len());
        }
        let shorter = &text[..text.len() - 1];
        for bad in ["", "Bearer ", "Bearer", shorter, &format!("Basic {text}"), &format!("{text}x")] {
            assert!(!token.authorizes(bad.as_bytes()), "{bad}");
        }
        assert!(!token.authorizes(Token::generate().unwrap().expose().as_bytes()));
    }
}
