import type { HostTime } from '../../../../src/os/devices/host-time.ts'
import { kernelError } from '../../../../src/os/errors.ts'
import type { HandledSignal, System } from '../../../../src/os/process/system.ts'

/** Processes live as long as they are in {@link processes}. */
export class FakeSystem implements System {
  readonly pid = 2
  readonly architecture = 'x64'
  readonly processes = new Set<number>()
  readonly signals: { readonly pid: number; readonly signal: number }[] = []
  onKill: (pid: number, signal: number) => void = () => {}
  openFileLimit: number | undefined
  nice: number | undefined
  umask: number | undefined
  locksMappedFiles = false
  hostname: string | undefined
  timeUs: bigint | undefined
  readonly entropy: string[] = []
  /** The unhandled signal that ended the agent. */
  endedBy: HandledSignal | undefined
  readonly #handlers = new Map<HandledSignal, Set<() => void>>()

  signal(pid: number, signal: number): void {
    if (!this.processes.has(pid)) throw kernelError('kill', `pid ${pid}`, 'ESRCH')
    if (signal === 0) return
    this.signals.push({ pid, signal })
    this.onKill(pid, signal)
  }

  setOpenFileLimit(limit: number): void {
    this.openFileLimit = limit
  }

  setNice(nice: number): void {
    this.nice = nice
  }

  reportStackOnSignal(): void {}

  lockMappedFiles(): void {
    this.locksMappedFiles = true
  }

  setUmask(mask: number): void {
    this.umask = mask
  }

  setHostname(name: string): void {
    this.hostname = name
  }

  setTime(microseconds: bigint): void {
    this.timeUs = microseconds
  }

  /** What /dev/hwrng gives; undefined without the device. */
  hardware: Uint8Array | undefined
  reseeds = 0
  /** The host's time; undefined without a device that tells it. */
  host: HostTime | undefined

  async hardwareRandom(bytes: number): Promise<Uint8Array> {
    if (this.hardware === undefined) throw kernelError('open', '/dev/hwrng', 'ENOENT')
    return this.hardware.subarray(0, bytes)
  }

  reseedGenerators(): void {
    this.reseeds += 1
  }

  /** An RTC that is being read is not there for another reader. */
  async hostTime(): Promise<HostTime | undefined> {
    if (this.#isReading) return undefined
    this.#isReading = true
    await Promise.resolve()
    this.#isReading = false
    return this.host
  }

  #isReading = false

  async addEntropy(data: Uint8Array): Promise<void> {
    this.entropy.push(Buffer.from(data).toString())
  }

  onSignal(signal: HandledSignal, handler: () => void): () => void {
    const handlers = this.#handlers.get(signal) ?? new Set()
    this.#handlers.set(signal, handlers.add(handler))
    return () => handlers.delete(handler)
  }

  receive(signal: HandledSignal): void {
    const handlers = this.#handlers.get(signal) ?? new Set()
    if (handlers.size === 0) this.endedBy = signal
    for (const handler of handlers) handler()
  }
}
