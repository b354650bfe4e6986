//! Address prefixes as they are written, in the configuration and in list files. Does not know how
//! they are matched.

use super::error::{ValueError, quoted};
use super::text;
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

/// An address prefix, checked strictly: no host bits, no leading zeros, IPv4-mapped IPv6 (of at
/// least 96 bits) held as IPv4. A bare address is the prefix that holds just that address.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Cidr(pub IpNet);

impl FromStr for Cidr {
    type Err = ValueError;

    fn from_str(text: &str) -> Result<Self, ValueError> {
        let (address, length) = match text.split_once('/') {
            Some((address, length)) => (parse_address(address, text)?, Some(length)),
            None => (parse_address(text, text)?, None),
        };
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let length = match length {
            Some(length) => parse_length(length, bits, text)?,
            None => bits,
        };
        let net = match address {
            IpAddr::V6(v6) => match v6.to_ipv4_mapped() {
                Some(_) if length < 96 => return Err(mapped_too_short(text)),
                Some(v4) => Ipv4Net::new(v4, length - 96).map(IpNet::V4),
                None => Ipv6Net::new(v6, length).map(IpNet::V6),
            },
            IpAddr::V4(v4) => Ipv4Net::new(v4, length).map(IpNet::V4),
        };
        let net = net.map_err(|_| ValueError::new(format!("{} is not an address prefix", quoted(text))))?;
        if net.addr() != net.network() {
            let reason = format!("{} has bits set behind its prefix length", quoted(text));
            let hint = format!("did you mean {}, or {} for the one address?", net.trunc(), net.addr());
            return Err(ValueError::new(reason).with_hint(hint));
        }
        Ok(Cidr(net))
    }
}

fn parse_address(address: &str, text: &str) -> Result<IpAddr, ValueError> {
    address.parse().map_err(|_| {
        let reason = format!("{} is not an address prefix", quoted(text));
        let octets: Vec<&str> = address.split('.').collect();
        let all_digits = octets.iter().all(|o| !o.is_empty() && o.bytes().all(|b| b.is_ascii_digit()));
        let hint = if all_digits && octets.iter().any(|o| o.len() > 1 && o.starts_with('0')) {
            "numbers in an address must not start with 0".to_owned()
        } else if all_digits && octets.len() < 4 {
            format!("an IPv4 address has four numbers: {address}{}", ".0".repeat(4 - octets.len()))
        } else if all_digits && octets.len() == 4 {
            "each number of an IPv4 address is at most 255".to_owned()
        } else {
            "write an address and a length, such as 10.0.0.0/8 or 2001:db8::/32".to_owned()
        };
        ValueError::new(reason).with_hint(hint)
    })
}

fn parse_length(length: &str, bits: u8, text: &str) -> Result<u8, ValueError> {
    let refuse = |reason: &str| ValueError::new(format!("{} {reason}", quoted(text)));
    if length.is_empty() || !length.bytes().all(|b| b.is_ascii_digit()) {
        let hint = format!("the length is a number from 0 to {bits}");
        return Err(refuse("has no valid prefix length").with_hint(hint));
    }
    if length.len() > 1 && length.starts_with('0') {
        let trimmed = length.trim_start_matches('0');
        let hint = format!("write /{}", if trimmed.is_empty() { "0" } else { trimmed });
        return Err(refuse("has a prefix length with leading zeros").with_hint(hint));
    }
    match length.parse::<u8>() {
        Ok(length) if length <= bits => Ok(length),
        _ => {
            let family = if bits == 32 { "IPv4" } else { "IPv6" };
            let reason = format!("has a prefix length above {bits}");
            Err(refuse(&reason).with_hint(format!("{family} prefixes have 0 to {bits} bits")))
        }
    }
}

fn mapped_too_short(text: &str) -> ValueError {
    let reason = format!("{} is an IPv4-mapped prefix shorter than 96 bits", quoted(text));
    ValueError::new(reason).with_hint("write the IPv4 prefix itself, such as 10.0.0.0/8")
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Cidr {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Cidr {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::scalar(deserializer, "an address prefix such as 10.0.0.0/8", str::parse)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_and_bare_addresses_are_read() {
        for (text, net) in [
            ("10.0.0.0/8", "10.0.0.0/8"),
            ("10.1.2.3", "10.1.2.3/32"),
            ("::1", "::1/128"),
            ("2001:db8::/32", "2001:db8::/32"),
            ("0.0.0.0/0", "0.0.0.0/0"),
            ("::/0", "::/0"),
            ("::ffff:10.0.0.0/104", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3/32"),
            ("::ffff:0:0/96", "0.0.0.0/0"),
        ] {
            assert_eq!(text.parse::<Cidr>().unwrap().to_string(), net, "{text}");
        }
    }

    #[test]
    fn each_bad_shape_is_refused_with_its_own_hint() {
        for (text, part) in [
            ("10.0.0.0/33", "above 32"),
            ("::/129", "above 128"),
            ("10.0.0/8", "four numbers: 10.0.0.0"),
            ("not-an-ip", "such as 10.0.0.0/8"),
            ("10.0.0.7/24", "did you mean 10.0.0.0/24, or 10.0.0.7 for the one address?"),
            ("2001:db8::1/32", "did you mean 2001:db8::/32"),
            ("010.0.0.0/8", "must not start with 0"),
            ("10.0.0.0/08", "write /8"),
            ("10.0.0.0/", "0 to 32"),
            ("10.0.0.0/+8", "0 to 32"),
            ("10.0.0.0/8/8", "0 to 32"),
            ("300.0.0.0/8", "at most 255"),
            ("::ffff:0:0/95", "shorter than 96"),
            ("::ffff:10.0.0.1/104", "did you mean 10.0.0.0/8"),
            ("", "such as"),
            (" 10.0.0.0/8", "such as"),
            ("fe80::1%eth0", "such as"),
        ] {
            let error = text.parse::<Cidr>().unwrap_err().to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
