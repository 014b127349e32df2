//! SEC-1: none of seven secrets is in anything that anybody can read, whatever goes wrong.

mod process;

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    time::Duration,
};

use postrider_testkit::{Program, eventually_some};
use process::{Place, configuration};

const WITHIN: Duration = Duration::from_secs(60);

/// What a receiver does with a request.
#[derive(Clone, Copy)]
enum Behaviour {
    /// 400 with the whole request as the body, headers and all.
    Echo,
    /// 302 to a place that repeats the secrets.
    Redirect,
    /// Takes it and never answers.
    Silent,
}

fn receiver(behaviour: Behaviour) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            // A client that goes away in the middle is what some of these tests are about.
            std::thread::spawn(move || serve(stream, behaviour));
        }
    });
    address
}

fn serve(stream: TcpStream, behaviour: Behaviour) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut stream = stream;
    let mut request = String::new();
    let mut length = 0;
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        request.push_str(&line);
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap_or(0);
        }
        if line == "\r\n" {
            break;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    request.push_str(&String::from_utf8_lossy(&body));
    match behaviour {
        Behaviour::Echo => write!(
            stream,
            "HTTP/1.1 400 Bad Request\r\nx-echo: S3CRET5\r\ncontent-length: {}\r\n\r\n{request}",
            request.len()
        ),
        Behaviour::Redirect => write!(
            stream,
            "HTTP/1.1 302 Found\r\nlocation: http://127.0.0.1:1/S3CRET2?token=S3CRET3#S3CRET4\r\ncontent-length: 0\r\n\r\n"
        ),
        Behaviour::Silent => {
            // Until the other side gives up.
            reader.read_to_end(&mut Vec::new())?;
            Ok(())
        }
    }
}

fn partner() -> String {
    let connection = r#"kind = "http"
url = { env = "PARTNER_URL" }
authorization = { env = "PARTNER_AUTHORIZATION" }
headers = { x-key = { env = "PARTNER_AUTHORIZATION" } }
signing_secrets = [{ env = "PARTNER_SIGNING" }]
allow_plain_http = true
allow_networks = ["127.0.0.0/8"]"#;
    configuration(
        r#""sqlite:shop.db""#,
        "partner",
        connection,
        r#"target = "/""#,
    ) + r#"
[log]
level = "trace"
[relay]
breaker_first = "10ms"
[relay.deadlines]
connect = "200ms"
send = "400ms"
hard = "700ms"
settle_margin = "500ms"
lease = "5s"
heartbeat = "1s"
shutdown_grace = "3s"
"#
}

/// A signing key whose text holds the secret, and is base64 of enough bytes.
const SIGNING: &str = "whsec_S3CRET7aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// The secrets, in the spellings that a careless program would write.
const SECRETS: [&str; 7] = [
    "S3CRET1", "S3CRET2", "S3CRET3", "S3CRET4", "S3CRET5", "S3CRET6", "S3CRET7",
];

/// Everything that was said or stored.
#[derive(Default)]
struct Said(Vec<(String, String)>);

impl Said {
    fn command(&mut self, place: &Place, line: &str) {
        let answer = place.answer(line);
        self.0
            .push((line.to_owned(), answer.stdout + &answer.stderr));
    }

    /// What a relay serves and logs while it runs into the fault.
    async fn served(&mut self, place: &Place) {
        let relay = Program::new("relay").unwrap();
        relay
            .spawn(place.command(["run", "--set", "admin.listen=127.0.0.1:0"]))
            .unwrap();
        let address = eventually_some(WITHIN, "the relay to serve", || async {
            let log = relay.stderr().ok()?;
            let line = log.lines().find(|line| line.contains("serving /livez"))?;
            line.split("address=").nth(1)?.trim().parse().ok()
        })
        .await
        .unwrap();
        // Once it has met the destination, which these pages are about.
        let pages = eventually_some(WITHIN, "the pages", || async {
            let pages = ["/livez", "/readyz", "/metrics"].map(|path| get(address, path));
            let [Ok(livez), Ok(readyz), Ok(metrics)] = pages else {
                return None;
            };
            let met = readyz.contains("\"partner\"") && metrics.contains("\"partner\"");
            met.then_some([livez, readyz, metrics])
        })
        .await
        .unwrap();
        for page in pages {
            self.0.push(("a page".to_owned(), page));
        }
        relay.terminate().unwrap();
        relay.wait(WITHIN).await.unwrap();
        self.0.push(("the log".to_owned(), relay.stderr().unwrap()));
    }

    /// The bytes of every file that was made.
    fn files(&mut self, place: &Place) {
        for entry in std::fs::read_dir(place.path()).unwrap() {
            let path = entry.unwrap().path();
            let bytes = std::fs::read(&path).unwrap();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            self.0.push((path.display().to_string(), text));
        }
    }

    fn holds_no_secret(&self) {
        for (place, text) in &self.0 {
            for secret in SECRETS {
                let at = text.find(secret);
                if let Some(at) = at {
                    let from = text.floor_char_boundary(at.saturating_sub(200));
                    panic!("{secret} in {place}: …{}", &text[from..at + secret.len()]);
                }
            }
        }
    }

    fn mentions(&self, word: &str) -> bool {
        self.0.iter().any(|(_, text)| text.contains(word))
    }
}

fn get(address: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
    )?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// Provokes a fault of the receiver at this URL, and asks everything there is to ask.
async fn provoke(url: &str, expect: &str) {
    let mut place = Place::new(&partner());
    place.done("migrate");
    // Without the secrets, as where a plan is made elsewhere.
    place.done("apply --yes");
    place.set("PARTNER_URL", url);
    place.set("PARTNER_AUTHORIZATION", "Bearer S3CRET5");
    place.set("PARTNER_SIGNING", SIGNING);
    place.set("RUST_BACKTRACE", "full");
    let id = place.append(1, "a");
    let mut said = Said::default();
    said.command(&place, "plan");
    said.command(&place, "--set destinations.partner.lanes=3 apply --yes");
    said.command(&place, "check");
    said.command(&place, "check --json");
    said.command(&place, "provision");
    said.command(&place, "provision --yes");
    said.command(&place, "run --iterations-max 3");
    said.command(&place, "dispatch-once --json");
    for question in [
        "config show",
        "config show --json",
        "config check",
        "destination list --json",
        "deliveries list --json",
        "dead-letter list --json",
        "dead-letter replay --all --json",
        "sessions --json",
        "lanes --json",
        "plan --json",
        "events list --json",
    ] {
        said.command(&place, question);
    }
    said.command(&place, &format!("why {id}"));
    said.command(&place, &format!("why {id} --json"));
    said.command(&place, &format!("events show {id} --json --payload"));
    said.served(&place).await;
    said.files(&place);
    said.holds_no_secret();
    // The test would also pass if nothing had gone wrong.
    assert!(
        said.mentions(expect),
        "nothing says {expect:?}: {:?}",
        said.0
    );
}

const REST: &str = "/services/S3CRET2?token=S3CRET3";

#[tokio::test]
async fn sec_1_a_400_that_echoes_the_request() {
    let address = receiver(Behaviour::Echo);
    provoke(&format!("http://{address}{REST}"), "answered 400").await;
}

#[tokio::test]
async fn sec_1_a_redirect_that_holds_the_secrets() {
    let address = receiver(Behaviour::Redirect);
    provoke(&format!("http://{address}{REST}"), "redirected").await;
}

#[tokio::test]
async fn sec_1_a_receiver_that_never_answers() {
    let address = receiver(Behaviour::Silent);
    provoke(&format!("http://{address}{REST}"), "response_timeout").await;
}

#[tokio::test]
async fn sec_1_tls_against_a_receiver_without_it() {
    let address = receiver(Behaviour::Echo);
    provoke(&format!("https://{address}{REST}"), "not_connected").await;
}

#[tokio::test]
async fn sec_1_a_name_that_does_not_resolve() {
    provoke(&format!("https://nowhere.invalid{REST}"), "not_connected").await;
}

#[tokio::test]
async fn sec_1_an_address_that_is_refused() {
    provoke(&format!("http://169.254.169.254{REST}"), "address_refused").await;
    provoke(&format!("http://10.0.0.1{REST}"), "address_refused").await;
}

#[tokio::test]
async fn sec_1_a_url_that_is_not_right() {
    for url in [
        "https://user:S3CRET1@host/services/S3CRET2?token=S3CRET3#S3CRET4",
        "https://host/S3CRET2?token=S3CRET3#S3CRET4",
        "https://user:S3CRET1@ho st/S3CRET2",
        "S3CRET1://S3CRET2",
        "S3CRET1",
        "https://[S3CRET1]/S3CRET2",
        "https://host:S3CRET1/",
    ] {
        provoke(url, "url ").await;
    }
}

#[test]
fn sec_1_a_signing_key_that_is_none() {
    let address = receiver(Behaviour::Echo);
    let mut place = Place::new(&partner());
    place.done("migrate");
    place.done("apply --yes");
    place.set("PARTNER_URL", &format!("http://{address}/"));
    place.set("PARTNER_AUTHORIZATION", "S3CRET5\r\nx: S3CRET5");
    place.set("PARTNER_SIGNING", "S3CRET7");
    place.append(1, "a");
    let mut said = Said::default();
    said.command(&place, "apply --yes");
    said.command(&place, "config check --json");
    said.command(&place, "check");
    said.command(&place, "run --iterations-max 2");
    said.files(&place);
    said.holds_no_secret();
    assert!(said.mentions("signing_secrets") || said.mentions("authorization"));
}

#[test]
fn sec_1_a_database_url() {
    let mut said = Said::default();
    for url in [
        "postgresql://u:S3CRET6@127.0.0.1:1/db",
        "postgresql://u:S3CRET6@nowhere.invalid/db",
        "postgresql://u:S3CRET6@127.0.0.1:port/db",
        "postgresql://u:S3CRET6@127.0.0.1/db?sslmode=S3CRET6",
        "postgresql://u:S3CRET6@[::/db",
        "postgresql://u:S3C/RET6@h/S3CRET6@db",
        "mysql://u:S3CRET6@h/db",
        "S3CRET6",
    ] {
        let mut place = Place::new(&partner());
        place.set("POSTRIDER_STORE__URL", url);
        place.set("POSTRIDER_STORE__DOORBELL_URL", url);
        for command in [
            "migrate",
            "migrate --dry-run",
            "plan",
            "check",
            "events list --json",
            "run --iterations-max 1",
            "dispatch-once",
            "config show",
        ] {
            said.command(&place, command);
        }
        said.files(&place);
    }
    // In the file itself it is the operator's own doing, and still is not repeated.
    let place = Place::new(&partner().replace(
        "sqlite:shop.db",
        "postgresql://u:S3CRET6@127.0.0.1:1/db?password=S3CRET6",
    ));
    for command in [
        "migrate",
        "check",
        "config show",
        "config show --json",
        "events list",
    ] {
        said.command(&place, command);
    }
    said.holds_no_secret();
    assert!(said.mentions("P0010"), "the database was not asked");
}

#[test]
#[should_panic(expected = "S3CRET4 in somewhere")]
fn sec_1_this_test_can_fail() {
    let mut said = Said::default();
    said.0
        .push(("somewhere".to_owned(), "a…S3CRET4".to_owned()));
    said.holds_no_secret();
}
