use super::super::kernel::Refusal;
use super::*;

const MS: u64 = 1_000_000;
/// The controller's interval.
const INTERVAL: u64 = 7 * MS;

/// A machine on which nothing happens but what a test says.
struct Machine {
    available: Mask,
    ran: Vec<Option<u64>>,
    masks: Vec<Mask>,
    real_time: Vec<u32>,
    forbids: bool,
}

impl Machine {
    /// As the kernel has it: a mask without a processor that is there is as good as none.
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

/// Threads 1 to a number, on as many processors as a test likes.
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
            scene.records.claim(thread).expect("room");
        }
        scene.scheduler.begin(&mut scene.machine, 0);
        scene
    }

    /// Each thread runs for as long, `waiting` of which it waits, if it is still there.
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

/// Waiting as at one lock that is always held, and that each core more makes slower.
fn serial(mask: &Mask) -> f64 {
    collapse(1, mask.count())
}

/// Waiting where so many cores are of use.
fn collapse(parallel: u32, cores: u32) -> f64 {
    (1.0 - (f64::from(parallel) / f64::from(cores)).powf(1.2)).max(0.0)
}

#[test]
fn who_waits_too_much_goes_to_the_set_and_nobody_else() {
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
fn the_set_finds_its_size() {
    for (parallel, expected) in [(1_u32, 1..=1), (4, 4..=5), (8, 8..=8)] {
        let mut scene = Scene::new(8, 8);
        for _ in 0..200 {
            // So many can be in critical sections at once; the rest wait.
            // If nobody waited at all, nobody would be found out.
            scene.pass(5 * MS, |_, mask| {
                collapse(parallel, mask.count()).max(if mask.count() == 8 { 0.11 } else { 0.0 })
            });
        }
        let bound = scene.scheduler.counters().bound;
        assert!(expected.contains(&bound), "{parallel}: {bound}");
        // Consecutive, from the first on.
        assert!(scene.of(1) == first(bound as u16));
        assert!(scene.scheduler.counters().votes > 10);
    }
}

#[test]
fn slices_too_short_to_tell_are_not_told() {
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
fn masks_of_the_programs_own_are_left_alone() {
    let mut scene = Scene::new(8, 4);
    scene.machine.masks[3] = first(2);
    scene.machine.masks[4] = first(1);
    scene.machine.real_time = vec![2];
    for _ in 0..4 {
        scene.pass(5 * MS, |_, _| 0.9);
    }
    assert_eq!(scene.scheduler.counters().tasks, 1);
    assert!(scene.of(2) == first(8) && scene.of(3) == first(2) && scene.of(4) == first(1));
    // Somebody from outside.
    let own = Mask::of([5, 6]);
    scene.machine.masks[1] = own;
    for _ in 0..4 {
        scene.pass(5 * MS, |_, mask| serial(mask));
    }
    scene.scheduler.end(&scene.records, &mut scene.machine);
    assert!(scene.of(1) == own);
}

#[test]
fn a_mask_that_was_given_is_what_the_set_is_chosen_from() {
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
    assert!((1..=3).all(|thread| scene.machine.masks[thread] == given), "not all that there is");
}

#[test]
fn threads_come_and_go() {
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
    // The ids are used again, by threads that wait for nothing.
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
fn who_stays_outside_is_not_moved_until_it_waits_again() {
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
fn who_does_not_wait_any_more_comes_back() {
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
fn processors_that_go_and_come_are_followed() {
    let mut scene = Scene::new(8, 2);
    let wait = |_: u32, mask: &Mask| serial(mask);
    for _ in 0..4 {
        scene.pass(5 * MS, wait);
    }
    scene.machine.available = Mask::of([3, 4, 5]);
    for _ in 0..=2 * LOOK_EVERY_NS / INTERVAL {
        scene.pass(5 * MS, wait);
    }
    assert_eq!(scene.of(1), Mask::of([3]), "a set of what there is: {:?}", scene.scheduler.counters());
    scene.machine.available = first(8);
    for _ in 0..=LOOK_EVERY_NS / INTERVAL {
        scene.pass(5 * MS, |_, _| 0.0);
    }
    scene.scheduler.end(&scene.records, &mut scene.machine);
    assert!(scene.of(1) == first(8), "what was never restricted is not now");
}

#[test]
fn where_nobody_may_set_masks_nothing_is_done() {
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
fn load_control_is_told_of_the_sets_processors() {
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
    assert_eq!(limited.capacity, bound + 2.0, "one of the three that run is of the set");
}
