//! Ranges of IP addresses, such as `10.0.0.0/24`.

use std::net::IpAddr;
use std::str::FromStr;

/// A range of IP addresses, or one address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddressRange {
    network: IpAddr,
    bits: u8,
}

/// The error for a text that is neither an address nor a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be an address, or a range such as 10.0.0.0/24")]
pub struct RangeError;

impl FromStr for AddressRange {
    type Err = RangeError;

    fn from_str(text: &str) -> Result<Self, RangeError> {
        let (network, bits) = text.split_once('/').map_or((text, None), |(network, bits)| (network, Some(bits)));
        let network: IpAddr = network.parse().map_err(|_| RangeError)?;
        let max_bits = if network.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(max_bits), |bits| bits.parse().map_err(|_| RangeError))?;
        if bits > max_bits { Err(RangeError) } else { Ok(Self { network, bits }) }
    }
}

impl AddressRange {
    /// Returns whether the address is in the range. Addresses of the other family never are.
    pub fn contains(&self, ip: IpAddr) -> bool {
        let equal_bits = match (self.network, ip) {
            (IpAddr::V4(network), IpAddr::V4(ip)) => (network.to_bits() ^ ip.to_bits()).leading_zeros(),
            (IpAddr::V6(network), IpAddr::V6(ip)) => (network.to_bits() ^ ip.to_bits()).leading_zeros(),
            _ => return false,
        };
        equal_bits >= u32::from(self.bits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_has_the_addresses_that_begin_alike() {
        for (range, inside, outside) in [
            ("10.0.0.0/24", "10.0.0.255", "10.0.1.0"),
            ("10.0.0.7", "10.0.0.7", "10.0.0.6"),
            ("10.0.0.7/32", "10.0.0.7", "10.0.0.6"),
            ("0.0.0.0/0", "203.0.113.1", "fd00::1"),
            ("fd00:1::/32", "fd00:1:ffff::1", "fd00:2::1"),
            ("::/0", "fd00::1", "10.0.0.1"),
        ] {
            let range: AddressRange = range.parse().unwrap();
            assert!(range.contains(inside.parse().unwrap()) && !range.contains(outside.parse().unwrap()), "{range:?}");
        }
        for bad in ["", "10.0.0.0/33", "fd00::/129", "10.0.0/8", "10.0.0.0/", "10.0.0.0/-1", "registry"] {
            assert_eq!(bad.parse::<AddressRange>(), Err(RangeError), "{bad:?}");
        }
    }
}
