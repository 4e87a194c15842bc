export const INSTANCES = {
  lives: 'MICROVM_INSTANCE_LIVES',
  /** The seed of the random choices. */
  seed: 'MICROVM_INSTANCE_SEED',
} as const

/** What `npm test` takes. */
export const DEFAULT_LIVES = 6
