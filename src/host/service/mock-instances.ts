import { randomUUID } from 'node:crypto'
import { Changes } from '../../base/changes.ts'
import { AgentError } from '../../base/errors.ts'
import { printSamples } from '../../base/exposition.ts'
import {
  type AllocatePortRequest,
  type AttachRequest,
  type AttachResponse,
  ChangeStateRequest_Change as Change,
  type ChangeStateRequest,
  DeviceStatus_Plug,
  type EnsureInstanceRequest,
  type ExpandRequest,
  type ExpandResponse,
  BackendStatus_Health as Health,
  Instance,
  type InstanceChange,
  type PlugRequest,
  type ReplaceBackendRequest,
  Specification,
  State,
  type Stream,
  type UnplugRequest,
  type WatchInstancesRequest,
  type WatchInstancesResponse,
} from '../../gen/microvm/instance/v1/instance.ts'
import {
  isEqualBackend,
  isEqualDevice,
  withDevice,
  withoutDevices,
} from '../instance/devices/specification.ts'
import type { Caller, Instances } from '../instance/instances.ts'
import { checkQuota, type Quotas } from '../instance/record/quota.ts'
import { parseDocument } from '../machine/document/document.ts'
import { expand } from '../machine/expand.ts'
import { checkCanBeKept, warningsOf } from '../spec/check-spec.ts'
import { firstDifference } from '../spec/first-difference.ts'
import { specFromProto } from '../spec/from-proto.ts'
import { MockSnapshots } from './snapshots/mock-snapshots.ts'

/** How many changes WatchInstances can go back. */
const KEPT_CHANGES = 1024

const FIRST_PORT = 1024

interface Kept {
  instance: Instance
  readonly streams: Map<number, { readonly of: Stream; data: Buffer }>
  nextPort: number
  /** What the console has printed. */
  console: Buffer
}

interface MockParts {
  readonly nowMs?: () => number
  readonly quotas?: Quotas
}

/** Instances without machines, for `daemon --mock`. They answer as the real ones do; the guest echoes what it is sent. */
export class MockInstances extends MockSnapshots implements Instances {
  readonly #kept = new Map<string, Kept>()
  readonly #nowMs: () => number
  readonly #quotas: Quotas
  readonly #news = new Changes()
  #changes: InstanceChange[] = []
  #sequence = 0n

  constructor({ nowMs = Date.now, quotas = new Map() }: MockParts = {}) {
    super()
    this.#nowMs = nowMs
    this.#quotas = quotas
  }

  async expand({ document }: ExpandRequest, { tenant }: Caller): Promise<ExpandResponse> {
    return {
      machine: JSON.stringify(expand(parseDocument(document), { isPrivileged: tenant === undefined })),
    }
  }

  async ensure(
    { properties, specification, document, migrationTarget }: EnsureInstanceRequest,
    caller: Caller,
  ): Promise<Instance> {
    const other = document !== undefined ? 'document' : migrationTarget && 'migration_target'
    if (other) throw new AgentError('UNIMPLEMENTED', `${other}: a mock has no machines, want specification`)
    if (specification === undefined) throw new AgentError('INVALID_ARGUMENT', 'specification: missing')
    const spec = specFromProto(specification)
    checkCanBeKept(spec)
    const { key = '', tenant = '' } = properties ?? {}
    const known = this.#kept.get(key)
    if (known !== undefined) {
      const { instance } = known
      if (!isVisible(instance, caller))
        throw new AgentError('ALREADY_EXISTS', `instance ${key}: the key is taken`)
      const present = specFromProto(Specification.fromPartial(instance.specification ?? {}))
      const difference = firstDifference(present, spec)
      if (difference === undefined) return instance
      throw new AgentError(
        'FAILED_PRECONDITION',
        `instance ${key}: ${difference}: differs from the present one`,
      )
    }
    const made = Instance.fromPartial({
      properties: { ...properties, key, tenant },
      specification,
      createdMs: BigInt(this.#nowMs()),
      warnings: [...warningsOf(spec)],
      backends: mapValues(specification.backends, () => ({ health: Health.READY })),
      devices: mapValues(specification.devices, () => ({ plug: DeviceStatus_Plug.PRESENT })),
    })
    checkQuota(this.#quotas, made, this.#others())
    const kept = { instance: made, streams: new Map(), nextPort: FIRST_PORT, console: Buffer.alloc(0) }
    this.#kept.set(key, kept)
    this.#change(kept, 'created', 'The instance is being made.', { state: State.CREATING })
    return this.#change(kept, 'state', 'The machine is paused.', {
      state: State.PAUSED,
      bootId: randomUUID(),
    })
  }

  async get(key: string, caller: Caller): Promise<Instance> {
    return this.#get(key, caller).instance
  }

  list(caller: Caller): readonly Instance[] {
    const visible = [...this.#kept.values()].filter(({ instance }) => isVisible(instance, caller))
    return visible.map(({ instance }) => instance).sort((a, b) => (keyOf(a) < keyOf(b) ? -1 : 1))
  }

  async *watch(
    { after, once }: WatchInstancesRequest,
    caller: Caller,
  ): AsyncGenerator<WatchInstancesResponse, void> {
    for (let seen = after; ; ) {
      const first = this.#changes[0]?.sequence ?? this.#sequence + 1n
      const lost = seen + 1n < first ? first - seen - 1n : 0n
      const changes = this.#changes.filter(
        ({ sequence, tenant }) =>
          sequence > seen && (caller.tenant === undefined || caller.tenant === tenant),
      )
      if (this.#sequence > seen) seen = this.#sequence
      if (changes.length > 0 || lost > 0n) yield { changes, lost }
      if (once) return
      if (this.#sequence <= seen) await this.#news.next(caller.signal)
    }
  }

  async changeState({ key, change }: ChangeStateRequest, caller: Caller): Promise<Instance> {
    const kept = this.#get(key, caller)
    const { state } = kept.instance
    const isUp = state === State.PAUSED || state === State.RUNNING
    if (!isUp && (change === Change.PAUSE || change === Change.RESET)) throw notUp(key)
    const next = NEXT[change]
    if (change === Change.RESET)
      return this.#change(kept, 'state', 'The machine is reset.', { bootId: randomUUID() })
    if (next === undefined) throw new AgentError('INVALID_ARGUMENT', `change: ${change}, want a known one`)
    if (next === state) return kept.instance
    if (state === State.STOPPED) checkQuota(this.#quotas, kept.instance, this.#others(kept))
    const bootId = state === State.STOPPED ? { bootId: randomUUID() } : {}
    return this.#change(kept, 'state', `The machine is ${TEXTS[next]}.`, { state: next, ...bootId })
  }

  async replaceBackend(
    { key, backendKey, backend }: ReplaceBackendRequest,
    caller: Caller,
  ): Promise<Instance> {
    const kept = this.#get(key, caller)
    const { specification } = kept.instance
    const present = specification?.backends[backendKey]
    if (specification === undefined || present === undefined)
      throw new AgentError('NOT_FOUND', `instance ${key}: backend ${backendKey}: not found`)
    if (backend === undefined) throw new AgentError('INVALID_ARGUMENT', 'backend: missing')
    if (isEqualBackend(present, backend)) return kept.instance
    const backends = { ...specification.backends, [backendKey]: backend }
    return this.#change(kept, 'backend', `Backend ${backendKey} is replaced.`, {
      specification: { ...specification, backends },
    })
  }

  async plug({ key, deviceKey, device, backend }: PlugRequest, caller: Caller): Promise<Instance> {
    const kept = this.#getUp(key, caller)
    const { instance } = kept
    const { specification } = instance
    if (specification === undefined || device === undefined)
      throw new AgentError('INVALID_ARGUMENT', 'device: missing')
    const present = specification.devices[deviceKey]
    if (present !== undefined) {
      if (isEqualDevice(present, device)) return instance
      throw new AgentError('ALREADY_EXISTS', `instance ${key}: device ${deviceKey}: already plugged`)
    }
    const own = backend === undefined ? {} : { [device.backend]: backend }
    return this.#change(kept, 'device', `Device ${deviceKey} is plugged.`, {
      specification: withDevice(specification, deviceKey, { device, backend }),
      devices: { ...instance.devices, [deviceKey]: { plug: DeviceStatus_Plug.PRESENT } },
      backends: {
        ...instance.backends,
        ...mapValues(own, () => ({ ...NO_STATUS, health: Health.READY })),
      },
    })
  }

  async unplug({ key, deviceKey }: UnplugRequest, caller: Caller): Promise<Instance> {
    const kept = this.#getUp(key, caller)
    const { instance } = kept
    const { specification } = instance
    const device = specification?.devices[deviceKey]
    if (specification === undefined || device === undefined) return instance
    return this.#change(kept, 'device', `Device ${deviceKey} is unplugged.`, {
      specification: withoutDevices(specification, [deviceKey]),
      devices: without(instance.devices, deviceKey),
      backends: without(instance.backends, device.backend),
    })
  }

  async remove(key: string, caller: Caller): Promise<void> {
    const kept = this.#get(key, caller)
    this.#kept.delete(key)
    this.#change(kept, 'removed', 'The instance is removed.', { state: State.REMOVING })
  }

  async allocatePort(request: AllocatePortRequest, caller: Caller): Promise<Stream> {
    const { key, container, exec, stream } = request
    const kept = this.#get(key, caller)
    const port = kept.nextPort++
    const of = { port, container, exec, stream, first: 0n, end: 0n, closed: false }
    kept.streams.set(port, { of, data: Buffer.alloc(0) })
    return of
  }

  async streams(key: string, caller: Caller): Promise<readonly Stream[]> {
    return [...this.#get(key, caller).streams.values()].map(({ of, data }) => ({
      ...of,
      end: BigInt(data.length),
    }))
  }

  async *attach({ key, port, offset }: AttachRequest, caller: Caller): AsyncGenerator<AttachResponse, void> {
    const kept = this.#get(key, caller)
    const stream = kept.streams.get(port)
    if (stream === undefined) throw new AgentError('NOT_FOUND', `instance ${key}: port ${port}: not found`)
    for (let at = Number(offset); this.#kept.get(key) === kept; ) {
      const data = stream.data.subarray(at)
      if (data.length > 0) yield { offset: BigInt(at), data, moved: undefined }
      else await this.#news.next(caller.signal)
      at += data.length
    }
  }

  async *connectAgent(
    key: string,
    input: AsyncIterable<Uint8Array>,
    caller: Caller,
  ): AsyncGenerator<Uint8Array, void> {
    this.#getUp(key, caller)
    yield* input
  }

  async *console(
    key: string,
    input: AsyncIterable<Uint8Array>,
    caller: Caller,
  ): AsyncGenerator<Uint8Array, void> {
    const kept = this.#get(key, caller)
    const ended = new AbortController()
    const signal = AbortSignal.any([caller.signal, ended.signal])
    const typing = this.#type(kept, input).finally(() => ended.abort())
    try {
      for (let at = 0; this.#kept.get(key) === kept; ) {
        const data = kept.console.subarray(at)
        if (data.length > 0) yield data
        else await this.#news.next(signal)
        at += data.length
      }
    } catch (error) {
      if (!ended.signal.aborted) throw error
    } finally {
      await typing
    }
  }

  /** The guest writes to one of its streams. */
  write(key: string, port: number, data: Uint8Array): void {
    const stream = this.#kept.get(key)?.streams.get(port)
    if (stream === undefined) throw new Error(`instance ${key}: port ${port}: not found`)
    stream.data = Buffer.concat([stream.data, data])
    this.#news.announce()
  }

  metrics(): string {
    const counts = new Map<string, number>()
    for (const { instance } of this.#kept.values()) {
      const state = TEXTS[instance.state]
      counts.set(state, (counts.get(state) ?? 0) + 1)
    }
    const samples = [...counts].map(([state, value]) => ({ labels: { state }, value }))
    return printSamples('microvm_instances', { type: 'gauge', help: 'Instances by their state.' }, samples)
  }

  async close(): Promise<void> {}

  async #type(kept: Kept, input: AsyncIterable<Uint8Array>): Promise<void> {
    for await (const bytes of input) {
      kept.console = Buffer.concat([kept.console, bytes])
      this.#news.announce()
    }
  }

  protected seen(key: string, caller: Caller): Instance {
    return this.#get(key, caller).instance
  }

  protected reverted(key: string, change: Pick<Instance, 'specification'>): Instance {
    const kept = this.#kept.get(key)
    if (kept === undefined) throw new AgentError('NOT_FOUND', `instance ${key}: not found`)
    return this.#change(kept, 'snapshot', 'A snapshot is restored.', change)
  }

  #others(than?: Kept): readonly Instance[] {
    return [...this.#kept.values()].flatMap((each) => (each === than ? [] : [each.instance]))
  }

  #get(key: string, caller: Caller): Kept {
    const kept = this.#kept.get(key)
    if (kept === undefined || !isVisible(kept.instance, caller))
      throw new AgentError('NOT_FOUND', `instance ${key}: not found`)
    return kept
  }

  #getUp(key: string, caller: Caller): Kept {
    const kept = this.#get(key, caller)
    const { state } = kept.instance
    if (state !== State.PAUSED && state !== State.RUNNING) throw notUp(key)
    return kept
  }

  #change(kept: Kept, kind: string, text: string, change: Partial<Instance>): Instance {
    this.#sequence += 1n
    kept.instance = { ...kept.instance, ...change, sequence: this.#sequence }
    const { properties, state } = kept.instance
    this.#changes.push({
      sequence: this.#sequence,
      timeMs: BigInt(this.#nowMs()),
      key: properties?.key ?? '',
      tenant: properties?.tenant ?? '',
      kind,
      text,
      state,
    })
    if (this.#changes.length > KEPT_CHANGES) this.#changes = this.#changes.slice(-KEPT_CHANGES)
    this.#news.announce()
    return kept.instance
  }
}

const NEXT: Readonly<Record<Change, State | undefined>> = {
  [Change.CHANGE_UNSPECIFIED]: undefined,
  [Change.RUN]: State.RUNNING,
  [Change.PAUSE]: State.PAUSED,
  [Change.RESET]: undefined,
  [Change.STOP]: State.STOPPED,
  [Change.KILL]: State.STOPPED,
}

const TEXTS: Readonly<Record<State, string>> = {
  [State.STATE_UNSPECIFIED]: 'unknown',
  [State.AWAITING]: 'awaiting',
  [State.CREATING]: 'creating',
  [State.PAUSED]: 'paused',
  [State.RUNNING]: 'running',
  [State.STOPPING]: 'stopping',
  [State.STOPPED]: 'stopped',
  [State.REMOVING]: 'removing',
  [State.TERMINATED]: 'terminated',
}

const NO_STATUS = { node: '', sizeBytes: 0n, locks: [], jobs: [], lastError: '' }

function isVisible({ properties }: Instance, { tenant }: Caller): boolean {
  return tenant === undefined || tenant === properties?.tenant
}

function keyOf({ properties }: Instance): string {
  return properties?.key ?? ''
}

function notUp(key: string): AgentError {
  return new AgentError('FAILED_PRECONDITION', `instance ${key}: stopped, want it paused or running`)
}

function mapValues<Value, Result>(
  record: Readonly<Record<string, Value>>,
  make: (value: Value) => Result,
): Record<string, Result> {
  return Object.fromEntries(Object.entries(record).map(([key, value]) => [key, make(value)]))
}

function without<Value>(record: Readonly<Record<string, Value>>, key: string): Record<string, Value> {
  return Object.fromEntries(Object.entries(record).filter(([other]) => other !== key))
}
