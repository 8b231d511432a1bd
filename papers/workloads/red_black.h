/*
 * A red-black tree of numbers (Guibas and Sedgewick, FOCS 1978). Rebalancing after a removal
 * follows Cormen et al., Introduction to Algorithms, chapter 13, without a sentinel node: removals
 * anywhere in the tree would write the sentinel's parent and so conflict. The caller provides the
 * nodes, each on its own line. Nothing here locks.
 */
#ifndef UNCONVOY_RED_BLACK_H
#define UNCONVOY_RED_BLACK_H

#include "measure.h"

struct rb_node {
	struct rb_node *parent, *child[2];
	uint64_t key;
	bool red;
} __attribute__((aligned(MEASURE_LINE)));

struct rb_tree {
	struct rb_node *root;
};

static inline bool rb_is_red(const struct rb_node *node)
{
	return node && node->red;
}

static inline int rb_side(const struct rb_node *parent, const struct rb_node *node)
{
	return parent->child[1] == node;
}

/* Puts `new` (may be NULL) in the place of `old` below `parent`. */
static inline void rb_replace(struct rb_tree *tree, struct rb_node *parent, struct rb_node *old,
			      struct rb_node *new)
{
	if (!parent)
		tree->root = new;
	else
		parent->child[rb_side(parent, old)] = new;
	if (new)
		new->parent = parent;
}

/* Rotates `node` down towards `side`; its child of the other side moves up. */
static inline void rb_rotate(struct rb_tree *tree, struct rb_node *node, int side)
{
	struct rb_node *up = node->child[!side], *between = up->child[side];

	rb_replace(tree, node->parent, node, up);
	node->child[!side] = between;
	if (between)
		between->parent = node;
	up->child[side] = node;
	node->parent = up;
}

/*
 * Inserts `key` with the node `fresh`. Returns false, without touching `fresh`, if the key exists.
 */
static inline bool rb_insert(struct rb_tree *tree, uint64_t key, struct rb_node *fresh)
{
	struct rb_node *parent = NULL, **link = &tree->root, *node = fresh;

	while (*link) {
		parent = *link;
		if (parent->key == key)
			return false;
		link = &parent->child[key > parent->key];
	}
	node->parent = parent;
	node->child[0] = node->child[1] = NULL;
	node->key = key;
	node->red = true;
	*link = node;
	while (rb_is_red(parent = node->parent)) {
		struct rb_node *above = parent->parent;
		int side = rb_side(above, parent);
		struct rb_node *uncle = above->child[!side];
		if (rb_is_red(uncle)) {
			parent->red = uncle->red = false;
			above->red = true;
			node = above;
			continue;
		}
		if (rb_side(parent, node) != side) {
			rb_rotate(tree, parent, side);
			parent = node;
		}
		parent->red = false;
		above->red = true;
		rb_rotate(tree, above, !side);
		break;
	}
	if (tree->root->red)
		tree->root->red = false;
	return true;
}

/* Rebalances: the side of `node` (may be NULL) below `parent` has one black node too few. */
static inline void rb_mend(struct rb_tree *tree, struct rb_node *parent, struct rb_node *node)
{
	while (parent && !rb_is_red(node)) {
		int side = node ? rb_side(parent, node) : parent->child[0] != NULL;
		struct rb_node *sibling = parent->child[!side];
		if (sibling->red) {
			sibling->red = false;
			parent->red = true;
			rb_rotate(tree, parent, side);
			sibling = parent->child[!side];
		}
		if (!rb_is_red(sibling->child[0]) && !rb_is_red(sibling->child[1])) {
			sibling->red = true;
			node = parent;
			parent = node->parent;
			continue;
		}
		if (!rb_is_red(sibling->child[!side])) {
			sibling->child[side]->red = false;
			sibling->red = true;
			rb_rotate(tree, sibling, !side);
			sibling = parent->child[!side];
		}
		sibling->red = parent->red;
		parent->red = false;
		sibling->child[!side]->red = false;
		rb_rotate(tree, parent, side);
		return;
	}
	if (rb_is_red(node))
		node->red = false;
}

/* Removes `key`; returns false if the tree lacks it. */
static inline bool rb_remove(struct rb_tree *tree, uint64_t key)
{
	struct rb_node *node = tree->root;

	while (node && node->key != key)
		node = node->child[key > node->key];
	if (!node)
		return false;
	struct rb_node *orphan, *parent;
	bool lost_black;
	if (node->child[0] && node->child[1]) {
		struct rb_node *next = node->child[1];
		while (next->child[0])
			next = next->child[0];
		orphan = next->child[1];
		lost_black = !next->red;
		parent = next->parent == node ? next : next->parent;
		if (parent != next) {
			rb_replace(tree, next->parent, next, orphan);
			next->child[1] = node->child[1];
			next->child[1]->parent = next;
		}
		rb_replace(tree, node->parent, node, next);
		next->child[0] = node->child[0];
		next->child[0]->parent = next;
		next->red = node->red;
	} else {
		orphan = node->child[node->child[0] == NULL];
		parent = node->parent;
		lost_black = !node->red;
		rb_replace(tree, parent, node, orphan);
	}
	if (lost_black)
		rb_mend(tree, parent, orphan);
	return true;
}

/*
 * Returns the number of keys below `node`, and in `blacks` the number of black nodes on each path
 * down. Ends the program unless this is a red-black tree with keys within [low, high].
 */
static inline uint64_t rb_check(const struct rb_node *node, uint64_t low, uint64_t high,
				int *blacks)
{
	*blacks = 0;
	if (!node)
		return 0;
	int left_blacks, right_blacks;
	uint64_t keys = 1;
	/* A node at the end of the range has no room for a child beyond it. */
	if (node->key < low || node->key > high || (node->key == low && node->child[0]) ||
	    (node->key == high && node->child[1]))
		die_inconsistent("key %" PRIu64 " is in the wrong place: the lock did not exclude",
				 node->key);
	if (node->child[0])
		keys += rb_check(node->child[0], low, node->key - 1, &left_blacks);
	else
		left_blacks = 0;
	if (node->child[1])
		keys += rb_check(node->child[1], node->key + 1, high, &right_blacks);
	else
		right_blacks = 0;
	bool two_red = node->red && (rb_is_red(node->child[0]) || rb_is_red(node->child[1]));
	if (left_blacks != right_blacks || two_red)
		die_inconsistent("the tree is out of balance: the lock did not exclude");
	*blacks = left_blacks + !node->red;
	return keys;
}

#endif
