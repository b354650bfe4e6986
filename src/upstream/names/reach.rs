//! Which family of a name's addresses can be connected to? In the spirit of RFC 8305 ("Happy Eyeballs"),
//! but when a name is resolved and not when a request waits.
//!
//! A name with IPv4 and IPv6 addresses often has one family that leads nowhere from here. Both are
//! tried at once; a family is left out when none of its addresses could be connected to, and one of the
//! other's could, with a head start of 250 ms. Says nothing of a name with one family.

use super::resolver::Answer;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

/// How much longer than the faster family the slower one may take (RFC 8305 section 5).
const HEAD_START: Duration = Duration::from_millis(250);
/// For the faster family.
const PATIENCE: Duration = Duration::from_secs(2);
/// Addresses tried of each family.
const TRIED: usize = 3;

/// `answer` without a family that cannot be connected to at `port` while the other one can.
pub async fn within_reach(answer: Answer, port: u16) -> Answer {
    let reached = match (&answer.v4, &answer.v6) {
        (Ok(v4), Ok(v6)) if !v4.is_empty() && !v6.is_empty() => race(v4, v6, port).await,
        _ => return answer,
    };
    match reached {
        (true, false) => Answer { v6: Ok(Vec::new()), ..answer },
        (false, true) => Answer { v4: Ok(Vec::new()), ..answer },
        _ => answer,
    }
}

async fn race(v4: &[IpAddr], v6: &[IpAddr], port: u16) -> (bool, bool) {
    let patience = Instant::now() + PATIENCE;
    let (mut first, mut second) = (Box::pin(connects(v4, port)), Box::pin(connects(v6, port)));
    let after = |well: bool| if well { patience.min(Instant::now() + HEAD_START) } else { patience };
    tokio::select! {
        well = &mut first => (well, timeout_at(after(well), second).await.unwrap_or(false)),
        well = &mut second => (timeout_at(after(well), first).await.unwrap_or(false), well),
        () = tokio::time::sleep_until(patience) => (false, false),
    }
}

/// Whether one of the first few of these can be connected to.
async fn connects(addresses: &[IpAddr], port: u16) -> bool {
    let mut attempts = tokio::task::JoinSet::new();
    for address in addresses.iter().take(TRIED) {
        attempts.spawn(TcpStream::connect(SocketAddr::new(*address, port)));
    }
    while let Some(ended) = attempts.join_next().await {
        if matches!(ended, Ok(Ok(_))) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn both(port: u16) -> impl Future<Output = Answer> {
        let addresses = |text: &str| Ok(vec![text.parse().unwrap()]);
        let answer = Answer { v4: addresses("127.0.0.1"), v6: addresses("::1"), ttl: Duration::ZERO };
        within_reach(answer, port)
    }

    fn counts(answer: &Answer) -> (usize, usize) {
        (answer.v4.as_ref().unwrap().len(), answer.v6.as_ref().unwrap().len())
    }

    #[tokio::test]
    async fn a_family_that_cannot_be_connected_to_is_left_out() {
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = v4.local_addr().unwrap().port();
        assert_eq!(counts(&both(port).await), (1, 0));
        let v6 = TcpListener::bind(("::1", port)).unwrap();
        assert_eq!(counts(&both(port).await), (1, 1));
        drop(v4);
        assert_eq!(counts(&both(port).await), (0, 1));
        drop(v6);
        assert_eq!(counts(&both(port).await), (1, 1), "nothing speaks for one of them");
    }

    #[tokio::test]
    async fn a_silent_family_costs_no_more_than_its_head_start() {
        let v4 = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = v4.local_addr().unwrap().port();
        // Its queue is full: further connections get no answer.
        let silent = socket2::Socket::new(socket2::Domain::IPV6, socket2::Type::STREAM, None).unwrap();
        let address = SocketAddr::from((std::net::Ipv6Addr::LOCALHOST, port));
        silent.bind(&address.into()).unwrap();
        silent.listen(0).unwrap();
        let _full = std::net::TcpStream::connect(address).unwrap();
        // A busy machine may be late itself, but not each time.
        for _ in 0..20 {
            let begun = Instant::now();
            assert_eq!(counts(&both(port).await), (1, 0));
            assert!(begun.elapsed() >= HEAD_START, "{:?}", begun.elapsed());
            if begun.elapsed() < PATIENCE {
                return;
            }
        }
        panic!("never sooner than {PATIENCE:?}");
    }
}
