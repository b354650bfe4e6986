//! Tests of `format`: ordinary records, hidden values and hostile input in every format.

use super::*;
use crate::telemetry::escape::tests::is_safe;
use proptest::prelude::*;
use std::time::UNIX_EPOCH;

fn record() -> AccessRecord<'static> {
    AccessRecord {
        time: UNIX_EPOCH + Duration::from_millis(1_709_210_096_042),
        request_id: "0190",
        client: "::ffff:192.0.2.7".parse().unwrap(),
        peer: Some("[2001:db8::1]:4711".parse().unwrap()),
        listener: "edge",
        tls: Some("TLSv1.3"),
        method: "GET",
        host: "app.test",
        path: "/a b",
        query: Some("token=x&b=2"),
        protocol: "HTTP/1.1",
        status: 200,
        bytes_in: 0,
        bytes_out: 1234,
        duration: Duration::from_nanos(12_007_900),
        upstream: Some("app"),
        endpoint: Some("127.0.0.1:9000"),
        upstream_time: Some(Duration::from_micros(999)),
        attempts: 1,
        retries: None,
        route: "api",
        generation: 3,
        rejection: None,
        rejection_detail: None,
        user_agent: Some(b"curl/8 \"x\""),
        referer: None,
    }
}

fn bare() -> AccessRecord<'static> {
    AccessRecord {
        peer: None,
        tls: None,
        query: None,
        upstream: None,
        endpoint: None,
        upstream_time: None,
        user_agent: None,
        ..record()
    }
}

fn line(format: &Format, record: &AccessRecord<'_>, redaction: &Redaction) -> String {
    let mut out = b"before\n".to_vec();
    format.append(&mut out, record, redaction);
    String::from_utf8(out).unwrap().strip_prefix("before\n").unwrap().to_owned()
}

fn template(text: &str) -> Format {
    Format::Template(Template::compile(text).unwrap())
}

fn hiding() -> Redaction {
    let mut redaction =
        Redaction { query: QueryRedaction::new(&["token".to_owned()]), ..Redaction::default() };
    redaction.hidden[Field::UserAgent.index()] = true;
    redaction
}

#[test]
fn json_has_the_keys_of_the_contract_in_their_order() {
    let expected = concat!(
        r#"{"time":"2024-02-29T12:34:56.042Z","request_id":"0190","client":"192.0.2.7","#,
        r#""peer":"[2001:db8::1]:4711","listener":"edge","tls":"TLSv1.3","method":"GET","host":"app.test","#,
        r#""path":"/a b","query":"token=x&b=2","protocol":"HTTP/1.1","status":200,"bytes_in":0,"#,
        r#""bytes_out":1234,"duration_ms":12.007,"upstream":"app","endpoint":"127.0.0.1:9000","#,
        r#""upstream_ms":0.999,"attempts":1,"route":"api","generation":3,"user_agent":"curl/8 \"x\""}"#,
        "\n"
    );
    assert_eq!(line(&Format::Json, &record(), &Redaction::default()), expected);
}

#[test]
fn json_leaves_out_what_is_not_there() {
    let text = line(&Format::Json, &bare(), &Redaction::default());
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let missing = [
        "peer",
        "tls",
        "query",
        "upstream",
        "endpoint",
        "upstream_ms",
        "retries",
        "rejection",
        "rejection_detail",
    ];
    assert!(missing.iter().all(|key| value.get(key).is_none()), "{text}");
    assert_eq!(value["attempts"], 1);
}

#[test]
fn combined_is_what_apache_writes() {
    let text = line(&Format::Combined, &record(), &Redaction::default());
    let expected = concat!(
        r#"192.0.2.7 - - [29/Feb/2024:12:34:56 +0000] "GET /a b?token=x&b=2 HTTP/1.1" 200 1234 "-" "#,
        r#""curl/8 \"x\"""#,
        "\n"
    );
    assert_eq!(text, expected);
    let empty = AccessRecord { bytes_out: 0, ..bare() };
    let expected = "192.0.2.7 - - [29/Feb/2024:12:34:56 +0000] \"GET /a b HTTP/1.1\" 200 - \"-\" \"-\"\n";
    assert_eq!(line(&Format::Combined, &empty, &Redaction::default()), expected);
}

#[test]
fn a_template_writes_its_fields_and_dashes() {
    let format = template("{{{status}}} {duration_ms}ms {referer} \"{user_agent}\"!");
    assert_eq!(line(&format, &record(), &Redaction::default()), "{200} 12.007ms - \"curl/8 \\\"x\\\"\"!\n");
}

#[test]
fn a_refusal_has_its_word_and_its_detail_in_json_and_templates() {
    let refused = AccessRecord { rejection: Some("target"), rejection_detail: Some("nul"), ..record() };
    let json = line(&Format::Json, &refused, &Redaction::default());
    assert!(
        json.contains(r#","generation":3,"rejection":"target","rejection_detail":"nul","user_agent""#),
        "{json}"
    );
    let format = template("{rejection} {rejection_detail}");
    assert_eq!(line(&format, &refused, &Redaction::default()), "target nul\n");
    assert_eq!(line(&format, &record(), &Redaction::default()), "- -\n");
}

#[test]
fn a_wrong_template_is_refused_with_a_hint() {
    for (text, reason, hint) in [
        ("{statu}", "unknown key {statu}", "did you mean {status}?"),
        ("{status", "an unpaired brace in a template", "write {{ or }} for a brace"),
        ("status}", "an unpaired brace in a template", "write {{ or }} for a brace"),
        ("{status}\n", "a control character in a template", "one record is one line"),
    ] {
        assert_eq!(Template::compile(text).unwrap_err(), (reason.to_owned(), hint.to_owned()));
    }
    for text in ["", "jsn"] {
        assert_eq!(Template::compile(text).unwrap_err().0, "a template without any {key}");
    }
}

#[test]
fn hidden_values_appear_in_no_format() {
    let mut record = record();
    record.referer = Some(b"https://app.test/?token=x");
    for format in [Format::Json, Format::Combined, template("{query} {user_agent} {referer}")] {
        let text = line(&format, &record, &hiding());
        assert!(!text.contains("curl") && !text.contains("token=x"), "{text}");
        assert_eq!(text.matches("-redacted-").count(), 3, "{text}");
    }
}

fn hostile_text() -> impl Strategy<Value = String> {
    proptest::collection::vec(
        prop_oneof![
            any::<char>(),
            prop::sample::select(vec![
                '\n', '\r', '"', '\\', '\u{202e}', '\u{2066}', '\u{85}', '&', '=', ';'
            ]),
        ],
        0..24,
    )
    .prop_map(String::from_iter)
}

proptest! {
    #[test]
    fn any_record_is_one_safe_line_and_json_reads_back(
        (text, query) in (hostile_text(), hostile_text()),
        bytes in proptest::collection::vec(any::<u8>(), 0..24),
        (status, big, nanos) in (any::<u16>(), any::<u64>(), any::<u64>()),
        client in any::<std::net::Ipv6Addr>(),
    ) {
        let record = AccessRecord {
            request_id: &text, listener: &text, method: &text, host: &text, path: &text, route: &text,
            query: Some(&query), rejection: Some(&text), rejection_detail: Some(&text), user_agent: Some(&bytes), referer: Some(&bytes),
            status, bytes_in: big, bytes_out: big, duration: Duration::from_nanos(nanos), client: client.into(),
            ..record()
        };
        for format in [Format::Json, Format::Combined, template("{path}\"{referer}\"{query}{client}{peer}")] {
            for redaction in [Redaction::default(), hiding()] {
                let line = line(&format, &record, &redaction);
                prop_assert!(line.ends_with('\n') && is_safe(line.trim_end_matches('\n')), "{}", line);
            }
        }
        let value: serde_json::Value =
            serde_json::from_str(&line(&Format::Json, &record, &Redaction::default())).unwrap();
        prop_assert_eq!(&value["path"], &text);
        prop_assert_eq!(&value["query"], &query);
        prop_assert_eq!(&value["user_agent"], &*String::from_utf8_lossy(&bytes));
        prop_assert_eq!(&value["bytes_out"], big);
        prop_assert_eq!(&value["client"], &std::net::IpAddr::from(client).to_canonical().to_string());
        serde_json::from_str::<serde_json::Value>(&line(&Format::Json, &record, &hiding())).unwrap();
    }
}
