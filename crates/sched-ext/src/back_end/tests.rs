use super::*;
use unconvoy_sched::parameters::INHERITORS;

const MS: u64 = 1_000_000;

fn slice(task: u64, core: u32, waited: f64, bound: Bound, is_special: bool) -> Record {
    let slice = Slice { core, ran_ns: 4 * MS, waited_ns: (4.0 * MS as f64 * waited) as u64 };
    Record {
        task,
        tid: task as u32 + 100,
        is_special,
        parent: None,
        event: Event::Slice { slice, bound },
    }
}

const SHELL: u64 = 1_000;

fn of_shell(record: Record) -> Record {
    Record { parent: Some(Parent { task: SHELL, tid: 7 }), ..record }
}

fn event(task: u64, event: Event) -> Record {
    Record { task, tid: task as u32 + 100, is_special: true, parent: None, event }
}

fn update(task: u64, is_special: bool) -> Order {
    Order::Update { task, tid: task as u32 + 100, is_special, passes_on: false }
}

fn shell_passes_on(passes_on: bool) -> Order {
    Order::Update { task: SHELL, tid: 7, is_special: false, passes_on }
}

fn process(scheduler: &mut Scheduler, record: Record) -> Vec<Order> {
    scheduler.record(record, 0);
    scheduler.take_orders()
}

fn scheduler() -> Scheduler {
    Scheduler::new(Parameters::refined(8), 0)
}

#[test]
fn lock_intensive_task_is_confined_and_forgotten_at_its_end() {
    let mut all = scheduler();
    let first = all.bound();
    assert_eq!(process(&mut all, slice(1, 5, 0.05, first, false)), []);
    assert_eq!(all.tasks().count(), 0);
    let orders = process(&mut all, slice(1, 5, 0.5, first, false));
    assert_eq!(orders, [update(1, true)]);
    assert_eq!((all.policy().tasks(), all.tasks().count()), (1, 1));
    process(&mut all, event(1, Event::Exit));
    assert_eq!((all.policy().tasks(), all.tasks().count()), (0, 0));
}

#[test]
fn order_for_a_thread_that_executed_a_program_has_its_new_id() {
    let mut all = scheduler();
    let first = all.bound();
    process(&mut all, slice(1, 5, 0.5, first, false));
    process(&mut all, Record { tid: 7, ..slice(1, 0, 0.5, first, true) });
    assert_eq!(all.tasks().map(|known| known.tid).collect::<Vec<_>>(), [7]);
    let order = Order::Update { task: 1, tid: 7, is_special: true, passes_on: false };
    assert_eq!(all.all(), [order]);
}

#[test]
fn share_of_a_new_task_is_that_of_its_slices() {
    let mut all = scheduler();
    let first = all.bound();
    let mut share_after = |waited| {
        process(&mut all, slice(1, 5, waited, first, false));
        all.tasks().next().unwrap().share
    };
    assert_eq!([share_after(0.5), share_after(0.25)], [0.5, 0.375]);
    for _ in 0..100 {
        share_after(0.75);
    }
    assert!((share_after(0.75) - 0.75).abs() < 0.01, "the first slices count less and less");
}

#[test]
fn slice_under_another_bound_does_not_vote() {
    let mut all = scheduler();
    let first = all.bound();
    process(&mut all, slice(1, 5, 0.5, first, false));
    process(&mut all, slice(1, 0, 0.5, Bound { serial: 7, ..first }, true));
    assert_eq!(all.policy().votes().count(), 0);
    process(&mut all, slice(1, 0, 0.5, first, true));
    assert_ne!(all.policy().votes().share(), 0.0);
}

#[test]
fn votes_move_the_bound_and_number_each_change() {
    let mut all = scheduler();
    for task in 0..8 {
        let bound = all.bound();
        process(&mut all, slice(task, 5, 0.5, bound, false));
    }
    for round in 0..100 {
        let bound = all.bound();
        all.record(slice(round % 8, round as u32 % bound.cores, 0.0, bound, true), 0);
    }
    let orders = all.take_orders();
    assert_eq!(all.bound().cores, 8, "tasks that do not wait get all cores");
    let bounds: Vec<_> = orders.iter().map(|order| matches!(order, Order::Resize(_))).collect();
    assert_eq!(bounds.len() as u64, all.changes());
    assert_eq!(Bound::unpack(all.bound().pack()), all.bound());
}

#[test]
fn children_of_lock_intensive_tasks_start_in_the_set() {
    let mut all = scheduler();
    let first = all.bound();
    process(&mut all, slice(1, 5, 0.5, first, false));
    let child = |task, parent| Record {
        parent: Some(Parent { task: parent, tid: parent as u32 + 100 }),
        ..event(task, Event::Child)
    };
    assert_eq!(process(&mut all, child(2, 1)), []);
    assert_eq!(all.policy().tasks(), 2);
    // The policy does not know the parent, so it corrects the kernel side.
    assert_eq!(process(&mut all, child(4, 3)), [update(4, false)]);
    assert_eq!(all.policy().tasks(), 2);
}

/// A shell and its child on a machine that needs no orders.
#[derive(Default)]
struct Family([Task; 2]);

impl BackEnd for Family {
    type Id = usize;

    fn task(&mut self, id: usize) -> Option<&mut Task> {
        self.0.get_mut(id)
    }

    fn confine(&mut self, _: usize, _: u32, _: u32) -> bool {
        true
    }

    fn release(&mut self, _: usize) {}

    fn resize(&mut self, _: Change, _: u64) {}
}

/// This back end and a second one with the same policy treat a shell's children alike.
#[test]
fn shell_passes_on_while_its_children_wait() {
    let mut all = scheduler();
    let bound = all.bound();
    let mut same = Policy::new(Parameters::refined(8), 0);
    let mut family = Family::default();
    // The first child is recognized by its slice. The next one starts lock-intensive, and its slice
    // confirms it.
    for task in 1..3 {
        same.begins(&mut family, 1, Some(0));
        if task > 1 {
            assert_eq!(process(&mut all, of_shell(event(task, Event::Child))), []);
            same.before_lock(&mut family, 1);
        }
        assert_eq!(all.policy(), &same);
        let known = if task == 1 { vec![update(1, true)] } else { vec![] };
        assert_eq!(process(&mut all, of_shell(slice(task, 5, 0.5, bound, task > 1))), known);
        same.slice_begins(&mut family.0[1], Totals::default());
        same.slice_ends(&mut family, 1, Slice { core: 5, ran_ns: 4 * MS, waited_ns: 2 * MS }, 0);
        same.before_lock(&mut family, 1);
        let news = if task == 1 { vec![shell_passes_on(true)] } else { vec![] };
        assert_eq!(process(&mut all, of_shell(event(task, Event::Exit))), news);
        same.ends(&mut family, 1, Some(0));
        assert_eq!(all.policy(), &same);
    }
    assert_eq!(all.tasks().count(), 0, "the shell is not lock-intensive");

    // A child that does not wait ends the inheritance.
    assert_eq!(process(&mut all, of_shell(event(3, Event::Child))), []);
    assert_eq!(all.policy().tasks(), 1);
    assert_eq!(process(&mut all, of_shell(slice(3, 0, 0.0, bound, true))), [update(3, false)]);
    assert_eq!(process(&mut all, of_shell(event(3, Event::Exit))), [shell_passes_on(false)]);
    assert_eq!((all.policy().tasks(), all.all()), (0, vec![]));
}

#[test]
fn inheritance_without_a_slice_is_limited() {
    let mut all = scheduler();
    let bound = all.bound();
    process(&mut all, of_shell(slice(1, 5, 0.5, bound, false)));
    assert_eq!(process(&mut all, of_shell(event(1, Event::Exit))), [shell_passes_on(true)]);
    for task in 2..2 + u64::from(INHERITORS) {
        assert_eq!(all.take_orders(), []);
        all.record(of_shell(event(task, Event::Child)), 0);
        all.record(of_shell(event(task, Event::Exit)), 0);
    }
    assert_eq!(all.take_orders(), [shell_passes_on(false)]);
    // The kernel side created this child before the order arrived.
    assert_eq!(process(&mut all, of_shell(event(50, Event::Child))), [update(50, false)]);
    assert_eq!((all.policy().tasks(), all.all()), (0, vec![]));
}

#[test]
fn parent_that_has_ended_is_forgotten() {
    let mut all = scheduler();
    let bound = all.bound();
    process(&mut all, of_shell(slice(1, 5, 0.5, bound, false)));
    assert_eq!(process(&mut all, of_shell(event(1, Event::Exit))), [shell_passes_on(true)]);
    all.ended(SHELL);
    assert_eq!((all.take_orders(), all.all()), (vec![], vec![]));
}

#[test]
fn task_with_a_lost_beginning_is_added_at_its_next_slice() {
    let mut all = scheduler();
    let first = all.bound();
    assert_eq!(process(&mut all, slice(1, 0, 0.5, first, true)), []);
    assert_eq!(all.policy().tasks(), 1);
    let orders = process(&mut all, slice(2, 0, 0.0, first, true));
    assert_eq!(orders, [update(2, false)]);
    assert_eq!(all.all(), [update(1, true)]);
}
