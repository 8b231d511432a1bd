/*
 * One thread's transactions: pessimistic ones of RocksDB, reading committed rows, repeated when a row lock
 * cannot be had.
 *
 * A body reads with get(), reads and locks what it will change with lock(), and changes with put() and erase().
 * A row that it locks twice, or locks and then changes, stays one lock. If a lock times out, or would close a
 * cycle of waiting transactions, everything is rolled back and the body runs again from its beginning, with the
 * same input; so it must not keep what it computed in an earlier round.
 */
#ifndef UNCONVOY_ENGINE_SESSION_H
#define UNCONVOY_ENGINE_SESSION_H

#include <memory>
#include <optional>
#include <string>

#include <rocksdb/utilities/transaction.h>

#include "database.h"

namespace engine {

/* How one transaction ended, and how often it was repeated until then. */
struct Outcome {
	bool committed; /* false: its own rules made it fail, and it was rolled back */
	uint64_t deadlocks, timeouts;
};

struct Commits {
	bool sync;	/* fsync the log in every commit */
	double io_seconds; /* sleep in every commit of a transaction that wrote something, its locks held */
};

class Session {
    public:
	Session(Database &database, const Commits &commits);

	/* Runs `body`, a bool(Session &), until it committed (true) or failed by its rules (false). */
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

	/* From here to the end of the transaction, get() and scans see one moment. For transactions that only read. */
	void freeze();

	template <class Row> std::optional<Row> get(const Key &key)
	{
		return found<Row>(transaction_->Get(read_, key, &value_));
	}

	template <class Row> std::optional<Row> lock(const Key &key)
	{
		return found<Row>(get_for_update(key));
	}

	/* As get() and lock(), for a row that must be there. */
	template <class Row> Row need(const Key &key) { return there(get<Row>(key)); }
	template <class Row> Row need_lock(const Key &key) { return there(lock<Row>(key)); }

	/* Locks the key, whether or not there is a row; true if there is. */
	bool lock_key(const Key &key);

	void put(const Key &key, const rocksdb::Slice &value) { changed(transaction_->Put(key, value)); }
	template <class Row> void put(const Key &key, const Row &row) { put(key, encode(row)); }
	void erase(const Key &key) { changed(transaction_->Delete(key)); }

	/* Calls `each(key, value)`, a bool, for the rows from `from` up to and without `to` until it returns false. */
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

	/* A transaction that loses this often is not unlucky: something holds a lock for good. */
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
	std::unique_ptr<rocksdb::Transaction> transaction_; /* kept, and used again for the next one */
	rocksdb::PinnableSlice value_;
	double io_seconds_;
};

} // namespace engine

#endif
