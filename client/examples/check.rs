//! Checks a few keys against an inline policy: `cargo run -p tollgate-client --example check -- 127.0.0.1:7420`

use tollgate_client::{Client, Limit};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let server = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:7420".into());
    let client = Client::connect(server).await?;
    let policy = client.define("token-bucket:10/1m,burst=2".parse::<Limit>()?)?;
    for attempt in 1..=3 {
        let decision = client.check(&policy, "user:1", 1).await?;
        println!("attempt {attempt}: allowed {}, retry after {:?}", decision.allowed, decision.retry_after);
    }
    Ok(())
}
