//! Errors of the admin API as problem documents (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

/// A problem document (RFC 9457 section 3). Its type is always `about:blank`: the status says what
/// kind of problem it is.
#[derive(Debug, Serialize)]
pub struct ProblemDocument {
    #[serde(rename = "type")]
    kind: &'static str,
    title: &'static str,
    status: u16,
    /// What is wrong with this request.
    detail: String,
    /// How to mend it.
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
}

impl ProblemDocument {
    /// A problem of one status.
    pub fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        ProblemDocument {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Error"),
            status: status.as_u16(),
            detail: detail.into(),
            hint: None,
        }
    }

    /// With a way to mend it.
    pub fn hint(mut self, hint: &'static str) -> Self {
        self.hint = Some(hint);
        self
    }
}

impl IntoResponse for ProblemDocument {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(self)).into_response();
        let kind = HeaderValue::from_static("application/problem+json");
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        response
    }
}

/// 404 for a path that is not an endpoint.
pub async fn not_found(uri: Uri) -> ProblemDocument {
    ProblemDocument::new(StatusCode::NOT_FOUND, format!("{} is not an endpoint", uri.path()))
}

/// 405 for an endpoint that exists; the router adds Allow (RFC 9110 section 10.2.1).
pub async fn method_not_allowed(method: Method, uri: Uri) -> ProblemDocument {
    ProblemDocument::new(StatusCode::METHOD_NOT_ALLOWED, format!("{} does not answer {method}", uri.path()))
}
