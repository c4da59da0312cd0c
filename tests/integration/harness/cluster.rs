//! A Redis Cluster: real servers that know each other.

use redis::{Connection, RedisResult, Value};

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
        let count = shape.primaries * (1 + shape.replicas);
        let nodes = (0..count).map(|_| start_node()).collect();
        let cluster = Self { nodes, primaries: shape.primaries };
        cluster.meet();
        cluster.assign_slots();
        for replica in shape.primaries..count {
            cluster.replicate(replica, replica - shape.primaries);
        }
        eventually("every node says that the cluster is whole", || cluster.is_whole());
        cluster
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
        let id: String = self.nodes[primary].command(&["CLUSTER", "MYID"]);
        let replicate = redis::cmd("CLUSTER").arg("REPLICATE").arg(id).to_owned();
        // Refused until the replica has heard of the primary's slots.
        eventually("a replica is taken", || replicate.exec(&mut self.nodes[replica].connect()).is_ok());
    }

    fn is_whole(&self) -> bool {
        self.nodes.iter().enumerate().all(|(index, node)| {
            let info = info(node);
            let linked = index < self.primaries
                || node.command::<String>(&["INFO", "replication"]).contains("master_link_status:up");
            info.contains("cluster_state:ok") && info.contains("cluster_slots_ok:16384\r") && linked
        })
    }

    /// Where Tollgate finds it: two of its nodes are enough.
    pub(crate) fn url(&self) -> String {
        let seeds = self.nodes.iter().take(2).map(|node| format!("127.0.0.1:{}", node.port));
        format!("redis-cluster://{}", seeds.collect::<Vec<_>>().join(","))
    }

    /// Index of the node that serves a slot as a running primary, if one does.
    pub(crate) fn primary_of(&self, slot: u16) -> Option<usize> {
        self.nodes.iter().position(|node| node.try_command(&["READWRITE"]).is_some() && serves(node, slot))
    }

    /// Moves a slot with its keys, key by key, as `redis-cli --cluster reshard` does.
    pub(crate) fn move_slot(&self, slot: u16, to: usize) {
        let from = self.primary_of(slot).expect("the slot is served");
        let (source, target) = (&self.nodes[from], &self.nodes[to]);
        let (source_id, target_id): (String, String) =
            (source.command(&["CLUSTER", "MYID"]), target.command(&["CLUSTER", "MYID"]));
        let slot = slot.to_string();
        target.command::<()>(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &source_id]);
        source.command::<()>(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &target_id]);
        let port = target.port.to_string();
        loop {
            let keys: Vec<String> = source.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "10"]);
            if keys.is_empty() {
                break;
            }
            let mut words = vec!["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            words.extend(keys.iter().map(String::as_str));
            source.command::<Value>(&words);
        }
        for node in [target, source] {
            node.command::<()>(&["CLUSTER", "SETSLOT", &slot, "NODE", &target_id]);
        }
    }

    /// Runs a command on every primary's connection.
    pub(crate) fn each_primary(&self, mut run: impl FnMut(&mut Connection)) {
        for node in &self.nodes[..self.primaries] {
            run(&mut node.connect());
        }
    }
}

fn start_node() -> RedisServer {
    let bus_port = free_port().to_string();
    let arguments = [
        ["--cluster-enabled", "yes"],
        ["--cluster-port", &bus_port],
        ["--cluster-node-timeout", "1500"],
        ["--cluster-require-full-coverage", "no"],
        ["--cluster-allow-replica-migration", "no"],
        ["--cluster-replica-validity-factor", "0"],
        ["--repl-diskless-sync-delay", "0"],
        ["--repl-ping-replica-period", "1"],
    ];
    RedisServer::start_with(Security::default(), arguments.as_flattened())
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
