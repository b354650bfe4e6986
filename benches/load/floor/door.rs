//! Accepts and hands over: one engine service per worker, each with one thread and its own descriptor of one listening
//! socket (docs/ARCHITECTURE.md, D1 to D5 and D10). Nothing is waited for outside the engine, nothing is bounded.

use super::ProxyArguments;
use super::proxy::Floor;
use super::stream::{FloorStream, Transport};
use async_trait::async_trait;
use boring::ssl::{
    AlpnError, Ssl, SslAcceptor, SslAcceptorBuilder, SslContext, SslFiletype, SslMethod, SslVersion,
    select_next_proto,
};
use pingora_core::apps::ServerApp;
use pingora_core::server::configuration::ServerConf;
use pingora_core::server::{ListenFds, RunArgs, Server, ShutdownWatch};
use pingora_core::services::Service;
use pingora_core::tls::tokio_ssl::SslStream;
use pingora_proxy::HttpProxy;
use socket2::{Domain, Protocol, Socket, Type};
use std::error::Error;
use std::io;
use std::net::TcpListener;
use std::pin::Pin;
use std::sync::Arc;
use tokio::net::TcpStream;

const BACKLOG: i32 = 4096;
/// Idle upstream connections of a worker.
const UPSTREAM_KEEPALIVE: usize = 8192;

/// Serves until it is killed or told to leave.
///
/// # Errors
/// When an argument is of no use, or the address cannot be bound.
pub fn run(arguments: &ProxyArguments) -> Result<(), Box<dyn Error>> {
    let floor = match (&arguments.origin, &arguments.page) {
        (Some(origin), _) => Floor::Forward(*origin),
        (None, Some(page)) => Floor::page(arguments.status, std::fs::read(page)?)?,
        (None, None) => return Err("either --origin or --page".into()),
    };
    let tls = tls(arguments)?;
    let socket = bind(arguments)?;
    let conf = Arc::new(conf());
    let mut server = Server::new_with_opt_and_conf(None, self::conf());
    server.bootstrap();
    for number in 0..arguments.workers {
        server.add_service(Worker {
            name: format!("worker {number}"),
            app: Arc::new(pingora_proxy::http_proxy(&conf, floor.clone())),
            socket: socket.try_clone()?,
            tls: tls.clone(),
        });
    }
    server.run(RunArgs::default());
    Ok(())
}

fn conf() -> ServerConf {
    ServerConf {
        threads: 1,
        work_stealing: false,
        listener_tasks_per_fd: 1,
        upstream_keepalive_pool_size: UPSTREAM_KEEPALIVE,
        grace_period_seconds: Some(0),
        graceful_shutdown_timeout_seconds: Some(0),
        ..ServerConf::default()
    }
}

struct Worker {
    name: String,
    app: Arc<HttpProxy<Floor>>,
    socket: TcpListener,
    tls: Option<SslContext>,
}

#[async_trait]
impl Service for Worker {
    async fn start_service(&mut self, _: Option<ListenFds>, shutdown: ShutdownWatch, _: usize) {
        let socket = self.socket.try_clone().and_then(tokio::net::TcpListener::from_std);
        let Ok(socket) = socket.inspect_err(|error| eprintln!("floor: {error}")) else { return };
        let mut leaving = shutdown.clone();
        loop {
            let accepted = tokio::select! {
                accepted = socket.accept() => accepted,
                _ = leaving.changed() => return,
            };
            let Ok((stream, _)) = accepted else { continue };
            let (app, tls, shutdown) = (Arc::clone(&self.app), self.tls.clone(), shutdown.clone());
            tokio::spawn(async move {
                if let Ok(stream) = open(stream, tls.as_ref()).await {
                    app.process_new(Box::new(stream), &shutdown).await;
                }
            });
        }
    }

    fn name(&self) -> &str {
        &self.name
    }

    fn threads(&self) -> Option<usize> {
        Some(1)
    }
}

async fn open(
    stream: TcpStream,
    tls: Option<&SslContext>,
) -> Result<FloorStream, Box<dyn Error + Send + Sync>> {
    let Some(context) = tls else { return Ok(FloorStream::new(Transport::Plain(stream))) };
    let mut stream = SslStream::new(Ssl::new(context)?, stream)?;
    Pin::new(&mut stream).accept().await?;
    // Tickets wait for the first write: without this, clients without TCP_NODELAY wait 40 ms for it.
    let _ = stream.get_ref().set_quickack(true);
    Ok(FloorStream::new(Transport::Tls(Box::new(stream))))
}

fn tls(arguments: &ProxyArguments) -> Result<Option<SslContext>, Box<dyn Error>> {
    let (Some(cert), Some(key)) = (&arguments.cert, &arguments.key) else { return Ok(None) };
    let mut context: SslAcceptorBuilder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls())?;
    context.set_certificate_chain_file(cert)?;
    context.set_private_key_file(key, SslFiletype::PEM)?;
    context.set_min_proto_version(Some(SslVersion::TLS1_3))?;
    context.set_alpn_select_callback(|_, offered| {
        select_next_proto(b"\x02h2\x08http/1.1", offered).ok_or(AlpnError::NOACK)
    });
    Ok(Some(context.build().into_context()))
}

fn bind(arguments: &ProxyArguments) -> io::Result<TcpListener> {
    let address = arguments.listen;
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    socket.set_tcp_nodelay(true)?;
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}
