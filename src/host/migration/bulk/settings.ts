import { AgentError } from '../../../base/errors.ts'

/** How the bulk of a move is done. */
export interface BulkSettings {
  /** For disks, all together, and then for memory. */
  readonly bandwidthBytesPerSecond: number
  /** QEMU stops the guest once the rest of its memory takes no longer than this. */
  readonly downtimeMs: number
  /** How much QEMU may slow a guest that changes memory faster than the wire; 0: not at all. */
  readonly throttlePercent: number
  /** How long the memory of a guest that runs may take. */
  readonly memoryMs: number
  /** How long a wire may carry nothing. */
  readonly stallMs: number
}

const BULK_SETTINGS: BulkSettings = {
  bandwidthBytesPerSecond: 2 ** 40,
  downtimeMs: 100,
  throttlePercent: 80,
  memoryMs: 600_000,
  stallMs: 10_000,
}

const LIMITS: Readonly<Record<keyof BulkSettings, readonly [least: number, most: number]>> = {
  bandwidthBytesPerSecond: [2 ** 20, 2 ** 40],
  downtimeMs: [1, 10_000],
  throttlePercent: [0, 99],
  memoryMs: [1000, 86_400_000],
  stallMs: [1000, 600_000],
}

/** The settings with the defaults. Throws INVALID_ARGUMENT naming the first that is out of its limits. */
export function bulkSettings(given: Partial<BulkSettings> = {}): BulkSettings {
  const settings = { ...BULK_SETTINGS, ...given }
  for (const name of Object.keys(LIMITS) as (keyof BulkSettings)[]) {
    const [least, most] = LIMITS[name]
    const value = settings[name]
    if (!Number.isSafeInteger(value) || value < least || value > most)
      throw new AgentError(
        'INVALID_ARGUMENT',
        `${name}: ${value}, want a whole number from ${least} to ${most}`,
      )
  }
  return settings
}
