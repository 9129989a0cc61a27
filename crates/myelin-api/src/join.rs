//! Join tokens, agent keys, and the file that carries a token to its agent.

use std::{fmt, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};

use myelin_shape::{AttemptKey, SwactorId};

use crate::WireKey;

/// Separates this use of the cluster's secret from every other.
const TOKEN_CONTEXT: &str = "myelin 2026 join token over an attempt key";

/// Separates the public name of an agent from its key.
const SWACTOR_CONTEXT: &str = "myelin 2026 swactor id of an agent key";

/// The text is not the right number of lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be {digits} lower-case hexadecimal digits")]
pub struct ParseHexError {
    /// How many digits were expected.
    pub digits: usize,
}

fn parse_hex<const N: usize>(text: &str) -> Result<[u8; N], ParseHexError> {
    let error = ParseHexError { digits: N * 2 };
    if text.len() != N * 2 {
        return Err(error);
    }
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(error),
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Ok(bytes)
}

fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string succeeds");
        text
    })
}

/// The 32 bytes that every join token of a cluster derives from. Its `Debug` form does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct JoinSecret([u8; 32]);

impl JoinSecret {
    /// Wraps bytes from a random source, which is the caller's.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes, for whoever stores them.
    pub fn expose(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the token of an attempt: a MAC over its key (`spec 4.4`).
    pub fn token(&self, key: &AttemptKey) -> JoinToken {
        JoinToken(self.mac(key).into())
    }

    /// Returns whether the token is the attempt's, in a time that does not depend on where it differs.
    pub fn verify(&self, key: &AttemptKey, token: &JoinToken) -> bool {
        self.mac(key) == blake3::Hash::from_bytes(token.0)
    }

    fn mac(&self, key: &AttemptKey) -> blake3::Hash {
        let secret = blake3::derive_key(TOKEN_CONTEXT, &self.0);
        blake3::keyed_hash(&secret, &canonical_bytes(key))
    }
}

impl fmt::Debug for JoinSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JoinSecret(..)")
    }
}

/// Returns bytes that no other key has: fixed widths, then the one text with its length.
fn canonical_bytes(key: &AttemptKey) -> Vec<u8> {
    let node = key.node.as_str().as_bytes();
    let n_node = u64::try_from(node.len()).expect("a text in memory is shorter than 2^64");
    let mut bytes = key.cluster.0.to_vec();
    bytes.extend(key.run.0.to_be_bytes());
    bytes.extend(key.attempt.0.to_be_bytes());
    bytes.extend(n_node.to_be_bytes());
    bytes.extend(node);
    bytes
}

macro_rules! secret_hex {
    ($name:ident, $n_bytes:literal) => {
        impl $name {
            /// Returns the hexadecimal text, which whoever reads it can use.
            pub fn expose(&self) -> String {
                hex(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = ParseHexError;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                parse_hex::<$n_bytes>(text).map(Self)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(concat!(stringify!($name), "(..)"))
            }
        }

        impl Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.expose())
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                text.parse().map_err(serde::de::Error::custom)
            }
        }
    };
}

/// What an agent proves with that an attempt is its own. 64 hexadecimal digits; its `Debug` form does not show them.
///
/// Has no `PartialEq`: tokens are compared by [`JoinSecret::verify`] only.
#[derive(Clone)]
pub struct JoinToken([u8; 32]);

secret_hex!(JoinToken, 32);

/// What an agent minted at its first start, and presents at each join. 32 hexadecimal digits; its `Debug` form does
/// not show them.
#[derive(Clone, PartialEq, Eq)]
pub struct AgentKey([u8; 16]);

secret_hex!(AgentKey, 16);

impl AgentKey {
    /// Wraps bytes from a random source, which is the caller's.
    pub fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Returns the agent's public name. The key cannot be derived from it.
    pub fn swactor(&self) -> SwactorId {
        let digest = blake3::derive_key(SWACTOR_CONTEXT, &self.0);
        SwactorId::from(hex(&digest[..8]))
    }
}

/// What an agent needs to join. A file of it is readable by its owner only, since it holds the token.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JoinFile {
    /// `host:port` to dial.
    pub address: String,
    /// The attempt to join as.
    pub key: WireKey,
    /// The proof.
    pub token: JoinToken,
    /// Directory the agent keeps its key in.
    pub state_dir: PathBuf,
}
