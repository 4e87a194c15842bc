import type { Hook, Hooks, Mount } from '../../gen/oci.ts'

/** What a device changes in a container's spec (CDI specification, `containerEdits`). */
export interface ContainerEdits<Node = CdiNode> {
  /** `NAME=value` each. */
  readonly env: readonly string[]
  readonly deviceNodes: readonly Node[]
  readonly mounts: readonly Mount[]
  readonly hooks: readonly CdiHook[]
  readonly additionalGids: readonly number[]
}

/** A device node as a CDI specification names it: what is undefined is as it is in the guest. */
export interface CdiNode {
  /** In the container. */
  readonly path: string
  /** In the guest; undefined where it is the same. */
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

/** A device node of which nothing is to be looked up any more, but whose owner may be the container's user. */
export interface ResolvedNode extends Pick<CdiNode, 'path' | 'permissions' | 'uid' | 'gid'> {
  readonly type: string
  readonly major: number
  readonly minor: number
  /** 0 leaves it to the runtime. */
  readonly fileMode: number
}

/** A hook, and in which of the spec's lists it goes. */
export interface CdiHook {
  readonly list: keyof Hooks
  readonly hook: Hook
}
