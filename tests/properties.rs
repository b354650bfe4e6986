//! What must hold for every input, checked against naive models: prefix lookup, access decisions, the
//! client address, the precedence of routes, canonical paths. Uses the library alone, no process.

use http::{HeaderMap, HeaderName, HeaderValue, Method};
use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use portcullis::access::cidr_set::{CidrMap, CidrSet};
use portcullis::access::client_addr::TrustedProxies;
use portcullis::access::policy::{AccessPolicy, Decision, DenyReason};
use portcullis::config::{
    AccessConfig, CidrEntry, DefaultAction, PathConfig, Problems, RouteConfig, Source, ValueMatchConfig,
};
use portcullis::proxy::request_target::{TargetRules, canonical_path, split_target};
use portcullis::routing::host::canonical_host;
use portcullis::routing::{RequestView, Router, Rule};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Addresses that crowd together, so that prefixes nest, touch and repeat.
fn address() -> impl Strategy<Value = IpAddr> {
    let crowded_v4 = (0_u32..64, select(vec![0_u32, 0x0A00_0000, 0xFFFF_FFC0]));
    let crowded_v6 = (0_u128..64, select(vec![0_u128, 0x2001_0db8 << 96, u128::MAX - 63, 0xFFFF_0000_0000]));
    prop_oneof![
        crowded_v4.prop_map(|(low, high)| IpAddr::V4(Ipv4Addr::from(low | high))),
        crowded_v6.prop_map(|(low, high)| IpAddr::V6(Ipv6Addr::from(low | high))),
        any::<u32>().prop_map(|bits| IpAddr::V4(bits.into())),
        any::<u128>().prop_map(|bits| IpAddr::V6(bits.into())),
    ]
}

fn prefix() -> impl Strategy<Value = IpNet> {
    (address(), 0_u8..=128, any::<bool>()).prop_map(|(address, length, long)| match address.to_canonical() {
        IpAddr::V4(address) => {
            let length = if long { 32 - length % 8 } else { length % 33 };
            IpNet::V4(Ipv4Net::new(address, length).unwrap().trunc())
        }
        IpAddr::V6(address) => {
            let length = if long { 128 - length % 8 } else { length };
            IpNet::V6(Ipv6Net::new(address, length).unwrap().trunc())
        }
    })
}

/// The longest prefix that holds the address, the last of equals.
fn naive_lookup<V: Copy>(prefixes: &[(IpNet, V)], address: IpAddr) -> Option<V> {
    let address = address.to_canonical();
    let holding = prefixes.iter().filter(|(prefix, _)| prefix.contains(&address));
    holding.max_by_key(|(prefix, _)| prefix.prefix_len()).map(|(_, value)| *value)
}

/// Both ends of every prefix and their neighbours: where lookups go wrong.
fn edges(prefixes: &[IpNet]) -> Vec<IpAddr> {
    let around = |address: IpAddr| match address {
        IpAddr::V4(a) => {
            [-1_i32, 0, 1].map(|step| IpAddr::V4(u32::from(a).wrapping_add_signed(step).into())).to_vec()
        }
        IpAddr::V6(a) => {
            [-1_i128, 0, 1].map(|step| IpAddr::V6(u128::from(a).wrapping_add_signed(step).into())).to_vec()
        }
    };
    prefixes
        .iter()
        .flat_map(|prefix| [around(prefix.network()), around(prefix.broadcast())].concat())
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn prefix_lookup_is_the_naive_one(
        prefixes in vec((prefix(), 0_u8..4), 0..120),
        addresses in vec(address(), 20),
    ) {
        let map = CidrMap::build(prefixes.clone());
        let set = CidrSet::build(prefixes.iter().map(|(prefix, _)| *prefix));
        let nets: Vec<IpNet> = prefixes.iter().map(|(prefix, _)| *prefix).collect();
        for address in addresses.into_iter().chain(edges(&nets)) {
            let expected = naive_lookup(&prefixes, address);
            prop_assert_eq!(map.get(address), expected, "{}", address);
            prop_assert_eq!(set.contains(address), expected.is_some(), "{}", address);
        }
    }

    #[test]
    fn access_decision_is_the_naive_one(
        allow in option::of(vec(prefix(), 0..20)),
        deny in vec(prefix(), 0..20),
        default in option::of(select(vec![DefaultAction::Allow, DefaultAction::Deny])),
        addresses in vec(address(), 20),
    ) {
        let entries = |prefixes: &[IpNet]| -> Vec<CidrEntry> {
            prefixes.iter().map(|prefix| CidrEntry::Inline(portcullis::config::Cidr(*prefix))).collect()
        };
        let config = AccessConfig {
            allow: allow.as_deref().map(entries),
            deny: entries(&deny),
            default,
            ..AccessConfig::default()
        };
        let policy = AccessPolicy::compile(&config, &Source::default(), "access", &mut Problems::default());
        let all = [allow.clone().unwrap_or_default(), deny.clone()].concat();
        for address in addresses.into_iter().chain(edges(&all)) {
            prop_assert_eq!(policy.decide(address), naive_decision(&allow, &deny, default, address));
        }
    }

    #[test]
    fn client_is_never_taken_from_somebody_who_is_not_trusted(
        trusted in vec(prefix(), 0..4),
        peer in address(),
        lines in vec((any::<bool>(), vec(hop(), 0..5)), 0..4),
    ) {
        let entries: Vec<_> = trusted.iter().filter(|prefix| prefix.prefix_len() > 0)
            .map(|prefix| CidrEntry::Inline(portcullis::config::Cidr(*prefix))).collect();
        let proxies = TrustedProxies::compile(&entries, &Source::default(), "", &mut Problems::default());
        let mut headers = HeaderMap::new();
        let mut hops = Vec::new();
        for (_, line) in &lines {
            let text = line.iter().map(|(text, _)| text.as_str()).collect::<Vec<_>>().join(", ");
            headers.append(HeaderName::from_static("x-forwarded-for"), HeaderValue::from_str(&text).unwrap());
            hops.extend(line.iter().map(|(_, address)| *address));
        }
        let client = proxies.client_addr(peer, &headers);
        prop_assert_eq!(client, naive_client(&proxies, peer, &hops));
        prop_assert_eq!(client, client.to_canonical());
    }

    #[test]
    fn forwarding_headers_of_any_bytes_never_panic(
        peer in address(),
        lines in vec((any::<bool>(), vec(select(br#"for=FOR10.2,;:"[]\ _x%f"#.to_vec()), 0..40)), 0..4),
        noise in vec(0x20_u8..=0xFF, 0..40),
    ) {
        let all = ["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"].map(|p| CidrEntry::Inline(p.parse().unwrap()));
        let proxies = TrustedProxies::compile(&all, &Source::default(), "", &mut Problems::default());
        let mut headers = HeaderMap::new();
        for (which, line) in lines.iter().chain([&(true, noise.clone()), &(false, noise.clone())]) {
            let name = if *which { "forwarded" } else { "x-forwarded-for" };
            if let Ok(value) = HeaderValue::from_bytes(line) {
                headers.append(HeaderName::from_static(name), value);
            }
        }
        proxies.client_addr(peer, &headers);
        headers.remove("x-forwarded-for");
        proxies.client_addr(peer, &headers);
    }

    #[test]
    fn route_choice_is_the_naive_one(
        routes in vec(route(), 1..80),
        requests in vec(request(), 30),
    ) {
        let mut problems = Problems::default();
        let rules = routes.iter().enumerate().map(|(index, config)| {
            Rule::compile(config, None, index, &Source::default(), "", &mut problems)
        }).collect();
        let (router, shadowed) = Router::build(rules);
        prop_assert!(problems.is_empty(), "{}", problems);
        for (host, path, method, env) in requests {
            let mut headers = HeaderMap::new();
            if let Some(env) = env {
                headers.insert("x-env", HeaderValue::from_static(env));
            }
            let view = RequestView {
                host: &host, path: &path, query: None, method: &method, headers: &headers,
                client: IpAddr::V4(Ipv4Addr::LOCALHOST),
                client_certificate: None,
            };
            let found = router.find(&view).copied();
            prop_assert_eq!(found, naive_route(&routes, &view), "{} {}", host, path);
            prop_assert!(shadowed.iter().all(|shadowed| Some(shadowed.route) != found));
        }
    }

    #[test]
    fn canonical_path_stays_as_it_is(
        raw in vec(select(PATH_PARTS.to_vec()), 0..12),
        merge_slashes in any::<bool>(),
        decode_slashes in any::<bool>(),
    ) {
        let rules = TargetRules { merge_slashes, decode_slashes };
        let raw = format!("/{}", raw.concat());
        if let Ok(path) = canonical_path(&raw, &rules) {
            let again = canonical_path(&path, &rules);
            prop_assert_eq!(again.as_deref(), Ok(&*path), "{}", raw);
            prop_assert!(path.starts_with('/'));
            prop_assert!(path.split('/').all(|segment| segment != "." && segment != ".."), "{}", path);
            prop_assert!(!merge_slashes || !path.contains("//"), "{}", path);
            prop_assert!(path.bytes().all(|byte| byte.is_ascii_graphic()), "{}", path);
            prop_assert!(!decode_slashes || !path.contains("%2F"), "{}", path);
        }
    }

    #[test]
    fn targets_and_hosts_of_any_text_never_panic(text in any::<String>(), path in "/[ -~]{0,40}") {
        let rules = TargetRules { merge_slashes: true, decode_slashes: false };
        for raw in [&text, &path, &format!("http://{text}")] {
            _ = canonical_path(raw, &rules);
            _ = split_target(&Method::GET, raw);
            if let Ok(host) = canonical_host(raw) {
                let again = canonical_host(&host);
                prop_assert_eq!(again.as_deref(), Ok(&*host));
            }
        }
    }
}

const PATH_PARTS: [&str; 22] = [
    "/", "/", "//", ".", "..", "/../", "/./", "%2e", "%2E", "%2f", "%2F", "%5C", "%25", "2f", "2e", "a", "b",
    "%61", "%e9", "\u{e9}", "{", "%7b",
];

fn naive_decision(
    allow: &Option<Vec<IpNet>>,
    deny: &[IpNet],
    default: Option<DefaultAction>,
    address: IpAddr,
) -> Decision {
    let longest = |prefixes: &[IpNet]| {
        let holding = prefixes.iter().filter(|prefix| prefix.contains(&address.to_canonical()));
        holding.map(IpNet::prefix_len).max()
    };
    match (longest(allow.as_deref().unwrap_or_default()), longest(deny)) {
        (allowed, Some(denied)) if allowed.is_none_or(|allowed| allowed <= denied) => {
            Decision::Deny(DenyReason::Listed)
        }
        (Some(_), _) => Decision::Allow,
        (None, _) => match default {
            Some(DefaultAction::Allow) => Decision::Allow,
            Some(DefaultAction::Deny) => Decision::Deny(DenyReason::Default),
            None if allow.is_some() => Decision::Deny(DenyReason::Default),
            None => Decision::Allow,
        },
    }
}

/// A hop as written, with the address it stands for.
fn hop() -> impl Strategy<Value = (String, Option<IpAddr>)> {
    prop_oneof![
        8 => (address(), any::<bool>()).prop_map(|(address, port)| {
            let text = match address {
                IpAddr::V4(a) if port => format!("{a}:80"),
                IpAddr::V6(a) if port => format!("[{a}]:80"),
                plain => plain.to_string(),
            };
            (text, Some(address.to_canonical()))
        }),
        1 => select(vec!["unknown", "_hidden", "1.2.3.4.5", "[::1"]).prop_map(|text| (text.to_owned(), None)),
    ]
}

fn naive_client(proxies: &TrustedProxies, peer: IpAddr, hops: &[Option<IpAddr>]) -> IpAddr {
    let chain: Vec<Option<IpAddr>> = hops.iter().copied().chain([Some(peer.to_canonical())]).collect();
    let known = chain.iter().rev().map_while(|hop| *hop);
    let mut client = peer.to_canonical();
    for address in known {
        client = address;
        if !proxies.is_trusted(address) {
            break;
        }
    }
    client
}

const HOSTS: [&str; 5] = ["a.test", "b.a.test", "*.a.test", "*.test", "*.b.a.test"];
const PATHS: [&str; 10] = ["/", "/x", "/x/", "/x/y", "/xx", "/x/y/z", "/x/y/", "/w", "/w/", "/xx/y"];

fn route() -> impl Strategy<Value = RouteConfig> {
    let path = prop_oneof![
        1 => Just(None),
        // Often enough that a host has more prefixes than are compared one by one.
        5 => select(PATHS.to_vec()).prop_map(|path| Some(PathConfig::Prefix(path.into()))),
        1 => select(PATHS.to_vec()).prop_map(|path| Some(PathConfig::Exact(path.into()))),
        1 => select(vec!["^/x/y/z", "yy", "^/x/y$"]).prop_map(|regex| Some(PathConfig::Regex(regex.into()))),
    ];
    let methods = select(vec![vec![], vec!["GET"], vec!["POST"], vec!["GET", "POST"]]);
    let env = select(vec![
        None,
        None,
        Some(ValueMatchConfig::Exact("canary".into())),
        Some(ValueMatchConfig::Present(true)),
        Some(ValueMatchConfig::Present(false)),
    ]);
    let hosts = vec(select(HOSTS.to_vec()), 0..3);
    (hosts, path, methods, env).prop_map(|(hosts, path, methods, env)| RouteConfig {
        hosts: hosts.into_iter().map(str::to_owned).collect(),
        path,
        methods: methods.into_iter().map(str::to_owned).collect(),
        headers: env.map(|env| ("x-env".to_owned(), env)).into_iter().collect(),
        ..RouteConfig::default()
    })
}

fn request() -> impl Strategy<Value = (String, String, Method, Option<&'static str>)> {
    (
        select(vec!["a.test", "b.a.test", "c.b.a.test", "d.test", "test", "[::1]"]).prop_map(str::to_owned),
        select(vec!["/", "/x", "/x/", "/x/y", "/x/y/", "/x/y/z", "/x/y/z/w", "/xx", "/xx/y", "/w", "/X"])
            .prop_map(str::to_owned),
        select(vec![Method::GET, Method::POST, Method::PUT]),
        select(vec![None, Some("canary"), Some("prod")]),
    )
}

/// Every route is asked; among those that take the request the best rank wins.
fn naive_route(routes: &[RouteConfig], request: &RequestView<'_>) -> Option<usize> {
    let ranked = routes.iter().enumerate().filter_map(|(index, route)| {
        let (host, pattern) = naive_host(route, request.host)?;
        let path = naive_path_rank(routes, route, pattern, request.path)?;
        let predicates = naive_predicates(route, request)?;
        Some(((host, path, std::cmp::Reverse(predicates), index), index))
    });
    ranked.min_by_key(|(rank, _)| *rank).map(|(_, index)| index)
}

/// The best of the route's hosts that holds the request's. Lower is better: 0 exact, then wildcards by
/// length, then any.
fn naive_host<'a>(route: &'a RouteConfig, host: &str) -> Option<(usize, Option<&'a str>)> {
    if route.hosts.is_empty() {
        return Some((usize::MAX, None));
    }
    let ranks = route.hosts.iter().filter_map(|pattern| match pattern.strip_prefix('*') {
        None => (pattern == host).then_some((0, Some(pattern.as_str()))),
        Some(suffix) => host.ends_with(suffix).then_some((1000 - suffix.len(), Some(pattern.as_str()))),
    });
    ranks.min()
}

/// Lower is better: exact, regular expressions by first appearance under that host pattern, prefixes by
/// length.
fn naive_path_rank(
    routes: &[RouteConfig],
    route: &RouteConfig,
    pattern: Option<&str>,
    path: &str,
) -> Option<(u8, usize)> {
    let has_pattern = |other: &RouteConfig| match pattern {
        None => other.hosts.is_empty(),
        Some(pattern) => other.hosts.iter().any(|host| host == pattern),
    };
    match route.path.as_ref() {
        None => Some((2, 999)),
        Some(PathConfig::Exact(exact)) => (exact == path).then_some((0, 0)),
        Some(PathConfig::Prefix(prefix)) => {
            let below = if prefix.ends_with('/') { prefix.clone() } else { format!("{prefix}/") };
            (path == prefix || path.starts_with(&below)).then_some((2, 1000 - prefix.len()))
        }
        Some(PathConfig::Regex(regex)) => {
            let first = routes.iter().position(|other| other.path == route.path && has_pattern(other));
            regex::Regex::new(regex).unwrap().is_match(path).then_some((1, first.unwrap_or(0)))
        }
    }
}

/// How many predicates there are, if all of them hold.
fn naive_predicates(route: &RouteConfig, request: &RequestView<'_>) -> Option<usize> {
    let method =
        route.methods.is_empty() || route.methods.iter().any(|method| method == request.method.as_str());
    let value = request.headers.get("x-env").map(|value| value.to_str().unwrap());
    let header = route.headers.values().all(|wanted| match wanted {
        ValueMatchConfig::Exact(exact) => value == Some(exact.as_str()),
        ValueMatchConfig::Present(present) => value.is_some() == *present,
        ValueMatchConfig::Regex(_) => unreachable!("not generated"),
    });
    (method && header).then_some(usize::from(!route.methods.is_empty()) + route.headers.len())
}
