#include "session.h"

#include <algorithm>
#include <cinttypes>
#include <cmath>

#include "measure.h"

namespace engine {

Session::Session(Database &database, const Commits &commits)
	: db_(database.transactions()), io_seconds_(commits.io_seconds)
{
	write_.sync = commits.sync;
	options_.deadlock_detect = true;
}

void Session::begin()
{
	transaction_.reset(db_.BeginTransaction(write_, options_, transaction_.release()));
}

void Session::freeze()
{
	transaction_->SetSnapshot();
	read_.snapshot = transaction_->GetSnapshot();
}

void Session::commit()
{
	if (transaction_->GetNumPuts() + transaction_->GetNumDeletes() == 0) {
		/* Even an empty commit would queue behind the writers. */
		roll_back();
		return;
	}
	if (io_seconds_ > 0)
		sleep_seconds(io_seconds_);
	check(transaction_->Commit());
}

void Session::roll_back()
{
	read_.snapshot = nullptr;
	check(transaction_->Rollback());
	transaction_->ClearSnapshot();
}

/*
 * The thread that waits for the released locks must be woken first, or the same deadlock recurs
 * where wake-ups are slow. The pause starts at 0.1 ms and doubles up to 10 ms.
 */
void Session::let_the_other_go_first(const Outcome &outcome)
{
	uint64_t doublings = std::min<uint64_t>(outcome.deadlocks + outcome.timeouts - 1, 7);
	double doubled = std::ldexp(1e-4, static_cast<int>(doublings));
	sleep_seconds(std::min(doubled, 0.01));
}

void Session::give_up(const Outcome &outcome)
{
	fail("a transaction met %" PRIu64 " deadlocks and %" PRIu64
	     " lock time-outs and never committed",
	     outcome.deadlocks, outcome.timeouts);
}

void Session::changed(const rocksdb::Status &status)
{
	if (status.ok())
		return;
	if (status.IsBusy() && status.subcode() == rocksdb::Status::kDeadlock)
		throw Conflict{true};
	if (status.IsTimedOut())
		throw Conflict{false};
	check(status);
}

bool Session::lock_key(const Key &key)
{
	rocksdb::Status status = get_for_update(key);
	value_.Reset();
	if (status.IsNotFound())
		return false;
	changed(status);
	return true;
}

} // namespace engine
