//! `:path`: what is decided on is what goes up (RFC 9113 section 8.3.1).

use super::{Case, Must, whole};

use Must::{Pass, Refuse, Reset};

fn get(path: &'static str) -> Vec<u8> {
    whole(&[(":method", "GET"), (":scheme", "http"), (":authority", "app.test"), (":path", path)])
}

const CLOSED: Must = Refuse(403, "access_denied");
const TARGET: Must = Refuse(400, "target");

pub const CASES: &[Case] = &[
    Case { name: "dot segments", frames: || get("/public/../admin"), must: CLOSED },
    Case { name: "doubled slashes before a rule", frames: || get("//admin"), must: CLOSED },
    Case { name: "a single dot", frames: || get("/./admin"), must: CLOSED },
    Case { name: "doubled slashes behind it", frames: || get("/admin//x"), must: CLOSED },
    Case { name: "escaped letters", frames: || get("/%61dmin"), must: CLOSED },
    Case { name: "escaped dots", frames: || get("/x/%2e%2E/admin"), must: CLOSED },
    Case { name: "dots half escaped", frames: || get("/x/.%2e/admin"), must: CLOSED },
    Case { name: "dots above the root", frames: || get("/../../admin"), must: CLOSED },
    Case { name: "a fragment is not part of the path", frames: || get("/admin#/public"), must: CLOSED },
    Case { name: "a query is not part of the path", frames: || get("/admin?/../public"), must: CLOSED },
    Case {
        name: "a segment that only begins like one",
        frames: || get("/administrator"),
        must: Pass("GET /administrator HTTP/1.1|host: app.test", ""),
    },
    Case {
        name: "an escape that is escaped stays",
        frames: || get("/%2561dmin"),
        must: Pass("GET /%2561dmin HTTP/1.1|host: app.test", ""),
    },
    Case {
        name: "what went up is what was decided on",
        frames: || get("/a/..//b/./%63?x=/../y"),
        must: Pass("GET /b/c?x=/../y HTTP/1.1|host: app.test", ""),
    },
    Case {
        name: "an encoded slash stays",
        frames: || get("/api/v4/projects/grp%2frepo"),
        must: Pass("GET /api/v4/projects/grp%2Frepo HTTP/1.1|host: app.test", ""),
    },
    Case {
        name: "an escaped line break stays escaped",
        frames: || get("/a%0d%0aX-A:%20b"),
        must: Pass("GET /a%0D%0AX-A:%20b HTTP/1.1|host: app.test", ""),
    },
    Case {
        name: "an empty query stays",
        frames: || get("/a?"),
        must: Pass("GET /a? HTTP/1.1|host: app.test", ""),
    },
    Case { name: "dot segments behind an encoded slash", frames: || get("/a%2F..%2Fadmin"), must: TARGET },
    Case {
        name: "dot segments behind an encoded backslash",
        frames: || get("/a%5C..%5Cadmin"),
        must: TARGET,
    },
    Case { name: "path parameters behind dots", frames: || get("/x/..;/admin"), must: TARGET },
    Case { name: "a backslash", frames: || get("/a\\..\\admin"), must: TARGET },
    Case { name: "an escaped NUL", frames: || get("/a%00"), must: TARGET },
    Case { name: "a percent sign that begins no escape", frames: || get("/100%"), must: TARGET },
    Case { name: "an escape with a letter that is no digit", frames: || get("/%g1"), must: TARGET },
    Case { name: "a NUL", frames: || get("/a\0"), must: Reset },
    Case { name: "a space", frames: || get("/ HTTP/1.1\u{20}x"), must: Reset },
    Case { name: "a tab", frames: || get("/a\tb"), must: Reset },
    Case {
        name: "a request line and fields",
        frames: || get("/ HTTP/1.1\r\nHost: app.test\r\nContent-Length: 0\r\n\r\nGET /smuggled"),
        must: Reset,
    },
    Case { name: "a line feed", frames: || get("/a\nX: y"), must: Reset },
    Case { name: "a line break in a query", frames: || get("/a?b\r\nX: y"), must: Reset },
    Case {
        name: "bytes above ASCII",
        frames: || get("/caf\u{e9}"),
        must: Pass("GET /caf%C3%A9 HTTP/1.1|host: app.test", ""),
    },
    Case { name: "no path", frames: || get(""), must: Reset },
    Case { name: "an absolute form", frames: || get("http://app.test/admin"), must: Reset },
    Case { name: "an absolute form of another host", frames: || get("http://evil.test/"), must: Reset },
    Case { name: "a path without a slash", frames: || get("admin"), must: Reset },
    Case { name: "a query without a path", frames: || get("?admin"), must: TARGET },
    Case { name: "an asterisk for GET", frames: || get("*"), must: TARGET },
    Case {
        name: "OPTIONS of everything",
        frames: || {
            whole(&[(":method", "OPTIONS"), (":scheme", "http"), (":authority", "app.test"), (":path", "*")])
        },
        must: Pass("OPTIONS * HTTP/1.1|host: app.test", ""),
    },
];
