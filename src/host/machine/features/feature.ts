import { optional, type Shape } from '../document/shape.ts'
import type { Draft } from './draft.ts'

/** What is known of the host that is to run the machine. Without a host nothing is known, and nothing is guessed. */
export interface HostFacts {
  readonly acceleration?: 'kvm' | 'tcg' | undefined
  /** The names of the CPU models that QEMU has here. */
  readonly cpuModels?: readonly string[] | undefined
  /** The CPUs of each NUMA node of the host. */
  readonly numaNodes?: readonly (readonly number[])[] | undefined
  /** The identity of the instance, from which MACs and serials are derived; else that of the document's name. */
  readonly uuid?: string | undefined
}

export interface FeatureContext {
  readonly facts: HostFacts
  /** The path of the feature in the document, for errors. */
  readonly at: string
}

interface FeatureOf<Wish> {
  readonly name: string
  /** Begins in lower case, without a period. */
  readonly summary: string
  readonly shape: Shape<Wish>
  /** Pure. A machine may have something of a feature without a wish for it. Throws INVALID_ARGUMENT. */
  readonly expand: (draft: Draft, wish: Wish | undefined, context: FeatureContext) => Draft
}

/** A part of a document, and what it makes of a machine. */
export interface Feature extends Omit<FeatureOf<unknown>, 'expand'> {
  readonly expand: (draft: Draft, wish: unknown, context: FeatureContext) => Draft
}

export function feature<Wish>({ expand, shape, ...rest }: FeatureOf<Wish>): Feature {
  return {
    ...rest,
    shape: optional(shape),
    // A wish has been read by the shape of its own feature.
    expand: (draft, wish, context) => expand(draft, wish as Wish | undefined, context),
  }
}
