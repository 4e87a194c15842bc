import { writeFileSync } from 'node:fs'
import { PassThrough } from 'node:stream'
import { AgentError } from '../../../../src/base/errors.ts'
import type {
  ChildPlan,
  HeldChild,
  HeldLease,
  Holder,
  Ring,
} from '../../../../src/host/instance/holder/holder.ts'
import type { Holders } from '../../../../src/host/instance/machine/steps.ts'
import { FakeQemu } from './fake-qemu.ts'

/** Holders in memory. They outlive the instances that are opened with them, as real ones outlive a daemon. */
export class FakeHolders implements Holders {
  readonly running = new Map<string, FakeHolder>()
  /** Fails the next starts with this text. */
  failure: string | undefined
  /** A port on which no holder can listen. */
  unheard = 0
  /** Called with each QEMU before it listens. */
  prepare: (qemu: FakeQemu) => void = () => {}
  /** Called before each request to a holder is carried out. */
  onRequest: (holder: FakeHolder) => void = () => {}
  /** Above the kernel's highest (2^22): a signal to such a pid reaches no process. */
  #nextPid = 5_000_000

  async start(folder: string): Promise<Holder> {
    if (this.failure !== undefined) throw new AgentError('UNAVAILABLE', this.failure)
    const holder = new FakeHolder(folder, this, this.#nextPid++)
    this.running.set(folder, holder)
    return holder
  }

  async find(folder: string): Promise<Holder | undefined> {
    return this.running.get(folder)
  }

  async kill(folder: string): Promise<void> {
    this.running.delete(folder)
  }

  /** The only QEMU of a test. */
  get qemu(): FakeQemu {
    const [holder] = this.running.values()
    if (holder?.qemu === undefined) throw new Error('no QEMU runs')
    return holder.qemu
  }

  get processes(): readonly string[] {
    return [...this.running.values()].flatMap(({ names }) => ['holder', ...names])
  }
}

interface Child {
  name: string
  pid: number
  exit: HeldChild['exit']
}

export class FakeHolder implements Holder {
  readonly pid: number
  readonly ended: Promise<void>
  qemu: FakeQemu | undefined
  #isDead = false
  #started = 0
  #lease: HeldLease | undefined
  readonly #folder: string
  readonly #holders: FakeHolders
  readonly #children: Child[] = []
  readonly #listeners = new Set<(child: HeldChild) => void>()
  readonly #rings = new Map<number, { ring: Ring; bytes: Buffer }>([])
  readonly #end = Promise.withResolvers<void>()

  constructor(folder: string, holders: FakeHolders, pid: number) {
    this.#folder = folder
    this.#holders = holders
    this.pid = pid
    this.ended = this.#end.promise
    this.write(0, '')
  }

  get names(): readonly string[] {
    return this.#children.filter(({ exit }) => exit === undefined).map(({ name }) => name)
  }

  async start({ name, argv }: ChildPlan): Promise<HeldChild> {
    this.#request()
    const child: Child = { name, pid: this.pid + ++this.#started, exit: undefined }
    const earlier = this.#children.findIndex((each) => each.name === name)
    if (earlier >= 0 && this.#children[earlier]?.exit === undefined)
      throw new AgentError('ALREADY_EXISTS', `child ${name}: runs already`)
    if (earlier >= 0) this.#children.splice(earlier, 1)
    this.#children.push(child)
    const socket = argv.at(-1) ?? ''
    if (name === 'qemu') {
      this.qemu = new FakeQemu(socket, () => this.#exit(child, 0))
      this.#holders.prepare(this.qemu)
    } else writeFileSync(socket, '')
    return { ...child }
  }

  async relay(): Promise<void> {
    this.#request()
  }

  async kill(name: string): Promise<void> {
    this.#request()
    const child = this.#children.find((each) => each.name === name && each.exit === undefined)
    if (child === undefined) return
    if (name === 'qemu') this.qemu?.end()
    else this.#exit(child, undefined)
  }

  async memory(): Promise<void> {
    this.#request()
  }

  async takeRing(): Promise<void> {
    this.#request()
  }

  async hasSealedMemory(): Promise<boolean> {
    this.#request()
    return false
  }

  async setLease(untilNs: bigint): Promise<void> {
    this.#request()
    this.#lease = { untilNs, hasEnded: false }
  }

  async heldLease(): Promise<HeldLease | undefined> {
    this.#request()
    return this.#lease
  }

  async children(): Promise<readonly HeldChild[]> {
    this.#request()
    return this.#children.map((child) => ({ ...child }))
  }

  onExit(listener: (child: HeldChild) => void): () => void {
    this.#listeners.add(listener)
    return () => this.#listeners.delete(listener)
  }

  async listen(_path: string, number: number): Promise<void> {
    this.#request()
    if (number === this.#holders.unheard) throw new AgentError('INTERNAL', `port ${number}: no space left`)
    this.write(number, '')
  }

  async rings(): Promise<readonly Ring[]> {
    this.#request()
    return [...this.#rings.values()].map(({ ring }) => ring)
  }

  async attach(
    number: number,
    offset: bigint,
  ): Promise<{ readonly first: bigint; readonly stream: PassThrough }> {
    const stream = new PassThrough()
    stream.end(this.#rings.get(number)?.bytes.subarray(Number(offset)))
    return { first: offset, stream }
  }

  async closeRing(number: number): Promise<void> {
    this.#rings.delete(number)
  }

  /** The guest, or QEMU, writes to a ring. */
  write(number: number, text: string): void {
    const bytes = Buffer.concat([this.#rings.get(number)?.bytes ?? Buffer.alloc(0), Buffer.from(text)])
    const ring = { number, first: 0n, end: BigInt(bytes.length), isClosed: false }
    this.#rings.set(number, { ring, bytes })
  }

  /** The guest ends a connection. */
  endRing(number: number): void {
    const { ring, bytes } = this.#rings.get(number) ?? {}
    if (ring !== undefined && bytes !== undefined)
      this.#rings.set(number, { ring: { ...ring, isClosed: true }, bytes })
  }

  async end(): Promise<void> {
    this.#request()
    this.die()
  }

  /** As SIGKILL does: the kernel kills all that it has started. */
  die(): void {
    this.#isDead = true
    this.#holders.running.delete(this.#folder)
    this.#listeners.clear()
    this.qemu?.end()
    this.#end.resolve()
  }

  disconnect(): void {
    this.#listeners.clear()
  }

  #request(): void {
    this.#holders.onRequest(this)
    if (this.#isDead) throw new AgentError('UNAVAILABLE', 'the holder has ended')
  }

  #exit(child: Child, code: number | undefined): void {
    if (child.exit !== undefined) return
    child.exit = { code, signal: code === undefined ? 9 : undefined }
    for (const listener of this.#listeners) listener({ ...child })
  }
}
