/** A member of at most one list. */
export interface Linked<Node> {
  earlier: Node | undefined
  later: Node | undefined
}

/**
 * Members in the order in which they were added. Nothing of a member is kept once it has left. V8 copies a Set into a new
 * table every few changes. A replaced table that is old keeps all later ones, with what they held, until V8 collects the
 * old generation.
 */
export class LinkedList<Node extends Linked<Node>> {
  #oldest: Node | undefined
  #newest: Node | undefined
  #size = 0

  get size(): number {
    return this.#size
  }

  add(node: Node): void {
    node.earlier = this.#newest
    if (this.#newest === undefined) this.#oldest = node
    else this.#newest.later = node
    this.#newest = node
    this.#size += 1
  }

  /** `node` is in this list. */
  remove(node: Node): void {
    const { earlier, later } = node
    if (earlier === undefined) this.#oldest = later
    else earlier.later = later
    if (later === undefined) this.#newest = earlier
    else later.earlier = earlier
    node.earlier = undefined
    node.later = undefined
    this.#size -= 1
  }

  /** The oldest first. The list must not change meanwhile. */
  *[Symbol.iterator](): Generator<Node, void> {
    for (let node = this.#oldest; node !== undefined; node = node.later) yield node
  }
}
