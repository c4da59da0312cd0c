//! A Redis Cluster: real servers that know each other.

use redis::{RedisResult, Value};

use super::{RedisServer, Security, eventually, free_port};

/// Slots of a Redis Cluster.
const SLOTS: u16 = 16_384;

/// How many servers form a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    pub(crate) primaries: usize,
    /// Of each primary: 0 or 1.
    pub(crate) replicas: usize,
}

/// A running cluster. Dropping it kills it.
pub(crate) struct Cluster {
    /// The primaries first, then a replica of each, in the same order.
    pub(crate) nodes: Vec<RedisServer>,
    primaries: usize,
}

impl Cluster {
    /// A cluster whose slots are spread over its primaries.
    pub(crate) fn start(shape: Shape) -> Self {
        Self::start_with(&Security::default(), shape)
    }

    /// A cluster that does not let everybody in.
    pub(crate) fn start_with(security: &Security, shape: Shape) -> Self {
        let count = shape.primaries * (1 + shape.replicas);
        let nodes = (0..count).map(|_| start_node(security.clone())).collect();
        let cluster = Self { nodes, primaries: shape.primaries };
        cluster.meet();
        cluster.assign_slots();
        for replica in shape.primaries..count {
            cluster.replicate(replica, replica - shape.primaries);
        }
        cluster.await_whole();
        cluster
    }

    /// Waits until every slot is served and every replica follows its primary.
    pub(crate) fn await_whole(&self) {
        eventually("every node says that the cluster is whole", || self.is_whole());
    }

    /// Waits until every replica has all that its primary wrote.
    pub(crate) fn await_replication(&self) {
        for node in &self.nodes[..self.primaries] {
            let replicas: u64 = node.command(&["WAIT", "1", "30000"]);
            assert_eq!(replicas, 1, "the replica follows");
        }
    }

    fn meet(&self) {
        for (epoch, node) in self.nodes.iter().enumerate() {
            // Configuration epochs of their own spare the nodes the settling of conflicts.
            node.command::<()>(&["CLUSTER", "SET-CONFIG-EPOCH", &(epoch + 1).to_string()]);
        }
        let first = &self.nodes[0];
        for node in &self.nodes[1..] {
            let (port, bus_port) = (node.port.to_string(), bus_port(node));
            first.command::<()>(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus_port]);
        }
        let count = self.nodes.len();
        eventually("every node knows every other", || {
            self.nodes.iter().all(|node| {
                let info = info(node);
                info.contains(&format!("cluster_known_nodes:{count}\r"))
                    && !node.command::<String>(&["CLUSTER", "NODES"]).contains("handshake")
            })
        });
    }

    fn assign_slots(&self) {
        let edge = |index: usize| index * usize::from(SLOTS) / self.primaries;
        for (index, node) in self.nodes[..self.primaries].iter().enumerate() {
            let (first, last) = (edge(index).to_string(), (edge(index + 1) - 1).to_string());
            node.command::<()>(&["CLUSTER", "ADDSLOTSRANGE", &first, &last]);
        }
    }

    fn replicate(&self, replica: usize, primary: usize) {
        let replicate = redis::cmd("CLUSTER").arg("REPLICATE").arg(self.id(primary)).to_owned();
        // Refused until the replica has heard of the primary's slots.
        eventually("a replica is taken", || replicate.exec(&mut self.nodes[replica].connect()).is_ok());
    }

    fn is_whole(&self) -> bool {
        self.nodes.iter().all(|node| {
            let (info, replication) = (info(node), node.command::<String>(&["INFO", "replication"]));
            let linked =
                replication.contains("role:master\r") || replication.contains("master_link_status:up\r");
            info.contains("cluster_state:ok\r") && info.contains("cluster_slots_ok:16384\r") && linked
        })
    }

    /// Where Tollgate finds it: two of its nodes are enough.
    pub(crate) fn url(&self) -> String {
        let first = self.nodes[0].url().replacen("://", "-cluster://", 1);
        format!("{first},127.0.0.1:{}", self.nodes[1].port)
    }

    /// Index of the node that serves a slot as a running primary, if one does.
    pub(crate) fn primary_of(&self, slot: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.try_command(&["READWRITE"]).is_some() && serves(node, slot))
    }

    /// Moves a slot with its keys, as `redis-cli --cluster reshard` does.
    pub(crate) fn move_slot(&self, slot: u16, to: usize) {
        let from = self.begin_move(slot, to);
        self.end_move(slot, from, to);
    }

    /// Begins to move a slot: keys that do not exist are from now on made at their new place. Answers where the
    /// slot was.
    pub(crate) fn begin_move(&self, slot: u16, to: usize) -> usize {
        let from = self.primary_of(slot).expect("the slot is served");
        let (slot, source_id, target_id) = (slot.to_string(), self.id(from), self.id(to));
        self.nodes[to].command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
        self.nodes[from].command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
        from
    }

    /// Moves the keys of a slot that is moving, and ends the move.
    pub(crate) fn end_move(&self, slot: u16, from: usize, to: usize) {
        let (slot, port, target_id) = (slot.to_string(), self.nodes[to].port.to_string(), self.id(to));
        loop {
            let keys: Vec<String> = self.nodes[from].command(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]);
            if keys.is_empty() {
                break;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            self.nodes[from].command::<Value>(&words);
        }
        // The others would learn it too, but later; until then they would contradict.
        let others = (0..self.primaries).filter(|node| ![from, to].contains(node));
        for node in [to, from].into_iter().chain(others) {
            self.nodes[node].command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        }
    }

    fn id(&self, node: usize) -> String {
        self.nodes[node].command(&["CLUSTER", "MYID"])
    }
}

fn start_node(security: Security) -> RedisServer {
    let bus_port = free_port().to_string();
    let tls_cluster = if security.tls.is_some() { "yes" } else { "no" };
    let arguments = [
        ["--cluster-enabled", "yes"],
        ["--cluster-port", &bus_port],
        ["--tls-cluster", tls_cluster],
        ["--cluster-node-timeout", "1500"],
        ["--cluster-require-full-coverage", "no"],
        ["--cluster-allow-replica-migration", "no"],
        ["--cluster-replica-validity-factor", "0"],
        ["--repl-diskless-sync-delay", "0"],
        ["--repl-ping-replica-period", "1"],
    ];
    RedisServer::start_with(security, arguments.as_flattened())
}

fn bus_port(node: &RedisServer) -> String {
    let config: Vec<String> = node.command(&["CONFIG", "GET", "cluster-port"]);
    config[1].clone()
}

fn info(node: &RedisServer) -> String {
    node.command(&["CLUSTER", "INFO"])
}

/// Whether a node serves a slot as far as it knows itself.
fn serves(node: &RedisServer, slot: u16) -> bool {
    let nodes: String = node.command(&["CLUSTER", "NODES"]);
    let myself = nodes.lines().find(|line| line.contains("myself,master"));
    // id address flags primary ping pong epoch link slots…
    let mut ranges = myself.into_iter().flat_map(|line| line.split(' ').skip(8));
    ranges.any(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        first.parse().is_ok_and(|first: u16| first <= slot)
            && last.parse().is_ok_and(|last: u16| slot <= last)
    })
}

impl RedisServer {
    /// A command to a server that may not run, or may hang.
    fn try_command(&self, words: &[&str]) -> Option<Value> {
        let timeout = std::time::Duration::from_millis(250);
        let client = redis::Client::open(("127.0.0.1", self.port)).ok()?;
        let mut connection = client.get_connection_with_timeout(timeout).ok()?;
        connection.set_read_timeout(Some(timeout)).ok()?;
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        let answer: RedisResult<Value> = command.query(&mut connection);
        answer.ok()
    }
}
