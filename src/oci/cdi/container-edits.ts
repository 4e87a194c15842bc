import type { Hook, Hooks, Mount } from '../../gen/oci.ts'

/** The changes of a device to a container's spec (CDI specification, `containerEdits`). */
export interface ContainerEdits<Node = CdiNode> {
  /** `NAME=value` each. */
  readonly env: readonly string[]
  readonly deviceNodes: readonly Node[]
  readonly mounts: readonly Mount[]
  readonly hooks: readonly CdiHook[]
  readonly additionalGids: readonly number[]
}

/** A device node in a CDI specification; undefined fields are taken from the node in the guest. */
export interface CdiNode {
  /** The path in the container. */
  readonly path: string
  /** The path in the guest; undefined when it is the same. */
  readonly hostPath: string | undefined
  /** OCI's letter: `b`, `c`, `u` or `p`. */
  readonly type: string | undefined
  readonly major: number | undefined
  readonly minor: number | undefined
  readonly fileMode: number | undefined
  /** Of `rwm`, or `none`; all where it is undefined. */
  readonly permissions: string | undefined
  readonly uid: number | undefined
  readonly gid: number | undefined
}

/** A device node with type, numbers and mode filled in; without an owner it belongs to the container's user. */
export interface ResolvedNode extends Pick<CdiNode, 'path' | 'permissions' | 'uid' | 'gid'> {
  readonly type: string
  readonly major: number
  readonly minor: number
  /** 0 leaves it to the runtime. */
  readonly fileMode: number
}

/** A hook, and the list of the spec that it is added to. */
export interface CdiHook {
  readonly list: keyof Hooks
  readonly hook: Hook
}
