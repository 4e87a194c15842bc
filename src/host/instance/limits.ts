import { MAX_SOCKET_PATH_BYTES } from '../spec/limits.ts'

/** The longest path of a socket below a state folder: that of a guest's port. */
const LONGEST_SOCKET_BYTES = '/instances/6b3f0c62-3d1e-4f0a-9a55-0f4f8f0c2d11/run/vsock.sock_4294967295'
  .length

export const MAX_STATE_FOLDER_BYTES = MAX_SOCKET_PATH_BYTES - LONGEST_SOCKET_BYTES

/** How long the parts of an instance may take, and how much is kept of it. */
export interface InstanceLimits {
  /** QEMU greets once its devices are made. */
  readonly greetingMs: number
  /** For one command of QMP. */
  readonly commandMs: number
  /** Until a daemon for a device has made its socket. */
  readonly daemonMs: number
  /** For one request to a holder. */
  readonly holderMs: number
  /** For the end of a holder or of its process; then the holder is killed. */
  readonly endMs: number
  /** Between the end of QEMU's socket and the holder's word of QEMU's end. */
  readonly exitMs: number
  /** How long a guest may take after its power button was pressed, unless the caller says. */
  readonly powerOffMs: number
  /** How long a guest may take to let a device go, unless the caller says. */
  readonly unplugMs: number
  /** How many instances are taken in again at a time. */
  readonly adopted: number
  /** How long a start waits for all to be taken in again. Then the others are served, and calls of a slow one wait. */
  readonly adoptionMs: number
  readonly keptChanges: number
  /** Of an instance. */
  readonly streams: number
  /** Events of QEMU that have come, and that the record does not follow yet. */
  readonly events: number
}

export const INSTANCE_LIMITS: InstanceLimits = {
  greetingMs: 60_000,
  commandMs: 30_000,
  daemonMs: 10_000,
  holderMs: 10_000,
  endMs: 2000,
  exitMs: 2000,
  powerOffMs: 30_000,
  unplugMs: 10_000,
  adopted: 20,
  adoptionMs: 5000,
  keptChanges: 10_000,
  streams: 2047,
  events: 1000,
}
