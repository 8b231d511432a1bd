/*
 * One thread's transactions: RocksDB's pessimistic ones, which read committed rows and repeat when
 * they cannot get a row lock.
 *
 * The body of a transaction is a function. It reads rows with get(), reads and locks the rows that
 * it will change with lock(), and changes rows with put() and erase(). Locking a row twice, or
 * locking and changing it, takes one lock. If a lock times out or would close a cycle of waiting
 * transactions, the session rolls everything back and runs the body again with the same input. The
 * body must not keep anything that it computed in an earlier round.
 */
#ifndef UNCONVOY_ENGINE_SESSION_H
#define UNCONVOY_ENGINE_SESSION_H

#include <memory>
#include <optional>
#include <string>

#include <rocksdb/utilities/transaction.h>

#include "database.h"

namespace engine {

/* How one transaction ended, and how often it was repeated. */
struct Outcome {
	bool committed; /* false: failed by its own rules, and was rolled back */
	uint64_t deadlocks, timeouts;
};

struct Commits {
	bool sync;	/* fsync the log in every commit */
	double io_seconds; /* sleep in every commit that wrote something, with its locks held */
};

class Session {
    public:
	Session(Database &database, const Commits &commits);

	/* Runs `body`, a bool(Session &), until it commits (true) or fails by its rules (false). */
	template <class Body> Outcome transact(Body body)
	{
		Outcome outcome{};
		for (;;) {
			begin();
			try {
				outcome.committed = body(*this);
				outcome.committed ? commit() : roll_back();
				return outcome;
			} catch (const Conflict &conflict) {
				roll_back();
				++(conflict.deadlock ? outcome.deadlocks : outcome.timeouts);
				if (outcome.deadlocks + outcome.timeouts > kMaxRepeats)
					give_up(outcome);
				let_the_other_go_first(outcome);
			}
		}
	}

	/* Makes get() and scans see one snapshot until the end of a read-only transaction. */
	void freeze();

	template <class Row> std::optional<Row> get(const Key &key)
	{
		return found<Row>(transaction_->Get(read_, key, &value_));
	}

	template <class Row> std::optional<Row> lock(const Key &key)
	{
		return found<Row>(get_for_update(key));
	}

	/* Like get() and lock(), for a row that must exist. */
	template <class Row> Row need(const Key &key) { return there(get<Row>(key)); }
	template <class Row> Row need_lock(const Key &key) { return there(lock<Row>(key)); }

	/* Locks the key, even if it has no row; returns whether it has one. */
	bool lock_key(const Key &key);

	void put(const Key &key, const rocksdb::Slice &value)
	{
		changed(transaction_->Put(key, value));
	}
	template <class Row> void put(const Key &key, const Row &row) { put(key, encode(row)); }
	void erase(const Key &key) { changed(transaction_->Delete(key)); }

	/* Calls `each(key, value)`, a bool, for the rows in [from, to) until it returns false. */
	template <class Each> void scan(const Key &from, const Key &to, Each each)
	{
		rocksdb::Slice end = to;
		rocksdb::ReadOptions bounded = read_;
		bounded.iterate_upper_bound = &end;
		std::unique_ptr<rocksdb::Iterator> at(transaction_->GetIterator(bounded));
		for (at->Seek(from); at->Valid(); at->Next())
			if (!each(at->key(), at->value()))
				return;
		check(at->status());
	}

    private:
	struct Conflict {
		bool deadlock;
	};

	/* After this many repeats the cause is not bad luck: some thread never releases a lock. */
	static constexpr uint64_t kMaxRepeats = 1000;

	rocksdb::Status get_for_update(const Key &key)
	{
		return transaction_->GetForUpdate(read_, db_.DefaultColumnFamily(), key, &value_);
	}

	void begin();
	void commit();
	void roll_back();
	[[noreturn]] static void give_up(const Outcome &outcome);
	static void let_the_other_go_first(const Outcome &outcome);
	/* Fails or throws unless `status` is good. */
	static void changed(const rocksdb::Status &status);

	template <class Row> std::optional<Row> found(const rocksdb::Status &status)
	{
		if (status.IsNotFound())
			return std::nullopt;
		changed(status);
		std::optional<Row> row = decode<Row>(value_);
		value_.Reset();
		return row;
	}

	template <class Row> static Row there(const std::optional<Row> &row)
	{
		if (!row)
			inconsistent("a row of %s is missing", Row::kTable);
		return *row;
	}

	rocksdb::TransactionDB &db_;
	rocksdb::WriteOptions write_;
	rocksdb::TransactionOptions options_;
	rocksdb::ReadOptions read_;
	std::unique_ptr<rocksdb::Transaction> transaction_; /* reused for the next one */
	rocksdb::PinnableSlice value_;
	double io_seconds_;
};

} // namespace engine

#endif
