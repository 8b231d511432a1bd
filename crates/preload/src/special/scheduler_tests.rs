use super::super::kernel::Refusal;
use super::*;

const MS: u64 = 1_000_000;
const INTERVAL: u64 = 7 * MS;

/// A machine that changes only when a test changes it.
struct Machine {
    available: Mask,
    ran: Vec<Option<u64>>,
    masks: Vec<Mask>,
    real_time: Vec<u32>,
    forbids: bool,
}

impl Machine {
    /// Like the kernel, treats a mask without any available processor as no mask.
    fn effective(&self, thread: u32) -> Mask {
        let mask = self.masks[thread as usize].and(&self.available);
        if mask.count() == 0 { self.available } else { mask }
    }
}

impl Kernel for Machine {
    fn ran(&mut self, thread: u32) -> Option<u64> {
        self.ran[thread as usize]
    }

    fn mask(&mut self, thread: u32) -> Result<Mask, Refusal> {
        Ok(self.effective(thread))
    }

    fn set_mask(&mut self, thread: u32, mask: &Mask) -> Result<(), Refusal> {
        if self.forbids {
            return Err(Refusal::Forbidden);
        }
        self.ran[thread as usize].ok_or(Refusal::Gone)?;
        if mask.and(&self.available).count() == 0 {
            return Err(Refusal::Unfit);
        }
        self.masks[thread as usize] = *mask;
        Ok(())
    }

    fn publish(&mut self, given: &Mask, mask: &Mask) {
        assert!(given.and(&self.available) == *mask);
    }

    fn is_ordinary(&mut self, thread: u32) -> bool {
        !self.real_time.contains(&thread)
    }
}

/// Threads with the ids 1, 2, ..., and a simulated machine.
struct Scene {
    scheduler: Scheduler,
    records: Box<Records>,
    machine: Machine,
    now: u64,
}

fn first(processors: u16) -> Mask {
    Mask::of(0..processors)
}

impl Scene {
    fn new(processors: u16, threads: u32) -> Self {
        let count = threads as usize + 1;
        let mut scene = Scene {
            scheduler: Scheduler::new(Parameters::refined, (0..processors).collect()),
            records: Box::new(Records::new()),
            machine: Machine {
                available: first(processors),
                ran: vec![Some(0); count],
                masks: vec![first(processors); count],
                real_time: Vec::new(),
                forbids: false,
            },
            now: 0,
        };
        for thread in 1..=threads {
            scene.records.claim(thread).expect("a free record");
        }
        scene.scheduler.begin(&mut scene.machine, 0);
        scene
    }

    /// One interval: each live thread runs for `ran` nanoseconds and waits for the share `waiting`
    /// of it.
    fn pass(&mut self, ran: u64, waiting: impl Fn(u32, &Mask) -> f64) {
        self.now += INTERVAL;
        for record in self.records.used() {
            let Some(thread) = record.thread() else { continue };
            let mask = self.machine.effective(thread);
            if let Some(total) = &mut self.machine.ran[thread as usize] {
                *total += ran;
                record.waited.fetch_add((ran as f64 * waiting(thread, &mask)) as u64, Relaxed);
            }
        }
        self.scheduler.interval(&self.records, &mut self.machine, self.now);
    }

    fn of(&self, thread: u32) -> Mask {
        self.machine.effective(thread)
    }
}

/// Waiting share at a lock that is always held and that each further core slows down.
fn serial(mask: &Mask) -> f64 {
    collapse(1, mask.count())
}

/// Waiting share where `parallel` of the `cores` are useful.
fn collapse(parallel: u32, cores: u32) -> f64 {
    (1.0 - (f64::from(parallel) / f64::from(cores)).powf(1.2)).max(0.0)
}

#[test]
fn only_threads_that_wait_too_much_join_the_set() {
    let mut scene = Scene::new(8, 4);
    for _ in 0..3 {
        scene.pass(5 * MS, |thread, _| if thread <= 2 { 0.5 } else { 0.09 });
    }
    assert!(scene.of(1).count() < 8 && scene.of(1) == scene.of(2));
    assert!(scene.of(3) == first(8) && scene.of(4) == first(8));
    assert_eq!(scene.scheduler.counters().tasks, 2);
    scene.scheduler.end(&scene.records, &mut scene.machine);
    for thread in 1..=4 {
        assert!(scene.of(thread) == first(8), "{thread}");
    }
    assert_eq!(scene.scheduler.counters().bound, 0);
}

#[test]
fn search_finds_useful_set_size() {
    for (parallel, expected) in [(1_u32, 1..=1), (4, 4..=5), (8, 8..=8)] {
        let mut scene = Scene::new(8, 8);
        for _ in 0..200 {
            // At most `parallel` threads can be in critical sections; the rest wait. On all cores,
            // each waits at least a little: a thread that never waits is never placed.
            scene.pass(5 * MS, |_, mask| {
                collapse(parallel, mask.count()).max(if mask.count() == 8 { 0.11 } else { 0.0 })
            });
        }
        let bound = scene.scheduler.counters().bound;
        assert!(expected.contains(&bound), "{parallel}: {bound}");
        // The first processors, without gaps.
        assert!(scene.of(1) == first(bound as u16));
        assert!(scene.scheduler.counters().votes > 10);
    }
}

#[test]
fn short_slices_are_accumulated_before_use() {
    let mut scene = Scene::new(8, 1);
    scene.pass(0, |_, _| 0.0);
    for _ in 0..3 {
        scene.pass(MS / 4, |_, _| 1.0);
    }
    assert_eq!(scene.scheduler.counters().tasks, 0);
    scene.pass(MS / 4, |_, _| 1.0);
    assert_eq!(scene.scheduler.counters().tasks, 1);
}

#[test]
fn masks_set_by_others_are_left_alone() {
    let mut scene = Scene::new(8, 4);
    scene.machine.masks[3] = first(2);
    scene.machine.masks[4] = first(1);
    scene.machine.real_time = vec![2];
    for _ in 0..4 {
        scene.pass(5 * MS, |_, _| 0.9);
    }
    assert_eq!(scene.scheduler.counters().tasks, 1);
    assert!(scene.of(2) == first(8) && scene.of(3) == first(2) && scene.of(4) == first(1));
    // Another process sets a mask.
    let own = Mask::of([5, 6]);
    scene.machine.masks[1] = own;
    for _ in 0..4 {
        scene.pass(5 * MS, |_, mask| serial(mask));
    }
    scene.scheduler.end(&scene.records, &mut scene.machine);
    assert!(scene.of(1) == own);
}

#[test]
fn set_is_chosen_from_given_mask() {
    let given = Mask::of([2, 4, 6]);
    let mut scene = Scene::new(8, 3);
    scene.machine.masks[1..].fill(given);
    for _ in 0..20 {
        scene.pass(5 * MS, |_, mask| serial(mask));
        for thread in 1..=3 {
            assert!(scene.of(thread).and(&given) == scene.of(thread));
        }
    }
    assert_eq!(scene.scheduler.counters().cores, 3);
    assert!(scene.of(1) == Mask::of([2]));
    scene.scheduler.end(&scene.records, &mut scene.machine);
    assert!(
        (1..=3).all(|thread| scene.machine.masks[thread] == given),
        "the given mask is restored, not all processors"
    );
}

#[test]
fn ended_threads_leave_and_reused_ids_start_fresh() {
    let mut scene = Scene::new(8, 6);
    for _ in 0..3 {
        scene.pass(5 * MS, |_, mask| serial(mask));
    }
    assert_eq!(scene.scheduler.counters().tasks, 6);
    for gone in [1, 2, 3] {
        scene.machine.ran[gone] = None;
    }
    scene.pass(5 * MS, |_, mask| serial(mask));
    assert_eq!(scene.scheduler.counters().tasks, 3);
    // The ids are reused by threads that do not wait.
    for again in [1_u32, 2, 3] {
        scene.machine.ran[again as usize] = Some(0);
        scene.machine.masks[again as usize] = first(8);
        assert_eq!(scene.records.claim(again), Some(again as usize - 1));
    }
    scene.pass(5 * MS, |thread, mask| if thread > 3 { serial(mask) } else { 0.0 });
    scene.pass(5 * MS, |thread, mask| if thread > 3 { serial(mask) } else { 0.0 });
    assert_eq!(scene.scheduler.counters().tasks, 3);
    assert!(scene.of(1) == first(8) && scene.of(4).count() == 1);
}

#[test]
fn outside_thread_is_not_moved_until_next_wait() {
    let mut scene = Scene::new(8, 2);
    scene.records.used()[0].status.store(super::super::threads::OUTSIDE, Relaxed);
    for _ in 0..30 {
        scene.pass(5 * MS, |_, mask| serial(mask));
    }
    assert!(scene.of(1) == first(8) && scene.of(2).count() == 1);
    scene.records.used()[0].release(FREE);
    for _ in 0..30 {
        scene.pass(5 * MS, |_, mask| serial(mask));
    }
    assert!(scene.of(1).count() == 1);
}

#[test]
fn thread_without_waits_leaves_the_set() {
    let mut scene = Scene::new(8, 2);
    for _ in 0..30 {
        scene.pass(5 * MS, |_, mask| serial(mask));
    }
    assert!(scene.of(1).count() == 1);
    for _ in 0..=FORGET_NS / INTERVAL {
        scene.pass(5 * MS, |thread, mask| if thread == 2 { serial(mask).max(0.5) } else { 0.0 });
    }
    assert!(scene.of(1) == first(8));
    assert_eq!(scene.scheduler.counters().tasks, 1);
}

#[test]
fn set_follows_available_processors() {
    let mut scene = Scene::new(8, 2);
    let wait = |_: u32, mask: &Mask| serial(mask);
    for _ in 0..4 {
        scene.pass(5 * MS, wait);
    }
    scene.machine.available = Mask::of([3, 4, 5]);
    for _ in 0..=2 * LOOK_EVERY_NS / INTERVAL {
        scene.pass(5 * MS, wait);
    }
    assert_eq!(
        scene.of(1),
        Mask::of([3]),
        "the set lies within the available processors: {:?}",
        scene.scheduler.counters()
    );
    scene.machine.available = first(8);
    for _ in 0..=LOOK_EVERY_NS / INTERVAL {
        scene.pass(5 * MS, |_, _| 0.0);
    }
    scene.scheduler.end(&scene.records, &mut scene.machine);
    assert!(scene.of(1) == first(8), "an unrestricted mask is restored");
}

#[test]
fn forbidden_masks_leave_threads_alone() {
    let mut scene = Scene::new(8, 2);
    scene.machine.forbids = true;
    scene.scheduler.begin(&mut scene.machine, 0);
    assert!(scene.scheduler.is_forbidden());
    for _ in 0..4 {
        scene.pass(5 * MS, |_, _| 0.9);
    }
    assert!(scene.of(1) == first(8));
}

#[test]
fn load_reading_is_limited_to_set_capacity() {
    let mut scene = Scene::new(8, 4);
    for _ in 0..4 {
        scene.pass(MS, |_, mask| serial(mask).max(0.5));
    }
    let all = Reading { runnable: 6.0, waiting: 3.0, capacity: 8.0 };
    let bound = f64::from(scene.scheduler.counters().bound);
    scene.scheduler.interval_began = scene.now;
    scene.scheduler.set_ran = INTERVAL;
    let limited = scene.scheduler.limit(all, scene.now + INTERVAL);
    assert_eq!((limited.runnable, limited.waiting), (6.0, 3.0));
    assert_eq!(limited.capacity, bound + 2.0, "one of the three running threads is in the set");
}
