//! What a check of a known key costs the allocator.

use super::*;

#[test]
fn checks_of_known_keys_allocate_nothing() {
    let texts = ["token-bucket:10/1m", "token-bucket:10/1m + sliding-window:10/1h"];
    let subject = Subject::new(ROOMY, &texts);
    let keys: Vec<_> = (0..1_024).map(|index| format!("user:{index}")).collect();
    let items: Vec<_> = (0..).zip(&keys).map(|(index, key)| check(index % 2, 1, key.as_bytes())).collect();
    let batch = subject.batch(&items);
    let mut out = Vec::new();
    subject.store.decide(&batch, &mut out);
    out.clear();
    let allocations = allocation_counter::measure(|| subject.store.decide(&batch, &mut out));
    assert_eq!(allowed(&out), 1_024);
    assert_eq!(allocations.count_total, 0);
}
