import { neverAborted } from '../../../base/abort.ts'
import { AgentError } from '../../../base/errors.ts'
import {
  type FenceVolumeRequest,
  FenceVolumeResponse,
  MoveResponse,
} from '../../../gen/microvm/instance/v1/handover.ts'
import {
  type Instance,
  MigrateInstanceResponse,
  type MigrationTarget,
  State,
} from '../../../gen/microvm/instance/v1/instance.ts'
import { InstanceRecord } from '../../../gen/microvm/instance/v1/records.ts'
import { specKey } from '../../spec/spec-key.ts'
import { describeInstance, isVisible } from '../describe-instance.ts'
import type { MachineInstance } from '../instance.ts'
import type { Caller, MoveCalls } from '../instances.ts'
import { checkedLease } from '../leases/check-lease.ts'
import type { Volumes } from '../leases/volumes.ts'
import type { HostMoves, Moves } from '../moves.ts'
import { AnswerQueue } from './answer-queue.ts'
import { isOf } from './only-vm.ts'

interface MovingHost {
  readonly moves: Moves | undefined
  readonly volumes: Volumes | undefined
  readonly instances: ReadonlyMap<string, MachineInstance>
  /** The instance that the caller may see. */
  readonly takenIn: (key: string, caller: Caller) => Promise<MachineInstance>
  readonly add: (record: InstanceRecord) => MachineInstance
}

export function moveCalls(host: MovingHost): MoveCalls {
  const moves = (): HostMoves => {
    const { hosts } = host.moves ?? {}
    if (hosts !== undefined) return hosts
    throw new AgentError(
      'FAILED_PRECONDITION',
      'no other hosts are known here, want [host] in the configuration',
    )
  }
  return {
    migrate: async function* (request, caller) {
      const hosts = moves()
      const instance = await host.takenIn(request.key, caller)
      const answers = new AnswerQueue<MigrateInstanceResponse>()
      const tell = (answer: Partial<MigrateInstanceResponse>) =>
        answers.push(MigrateInstanceResponse.fromPartial(answer), ({ step, totalBytes }) => {
          return step === answer.step && totalBytes !== 0n
        })
      const { inStep, signal } = caller
      const work = () => hosts.migrate(instance, request, { tell, inStep, signal })
      answers.endWith(instance.change(work, signal).then((last) => answers.push(last)))
      yield* answers.all(signal)
    },
    hosts: async () => await moves().hosts(),
    drain: async (isDraining) => await moves().drain(isDraining),
    ensureTarget: async ({ properties }, target, caller) => {
      const hosts = moves()
      const key = specKey(properties?.key ?? '')
      const known = host.instances.get(key)
      if (known !== undefined) return await knownTarget(known, target, caller)
      const tenant = caller.tenant ?? properties?.tenant ?? ''
      const fields = await hosts.awaiting(target)
      // Another call may have made it meanwhile.
      const rival = host.instances.get(key)
      if (rival !== undefined) return await knownTarget(rival, target, caller)
      const instance = host.add({
        ...{ ...InstanceRecord.create(), ...fields, createdMs: BigInt(Date.now()) },
        properties: { key, tenant, labels: properties?.labels ?? {}, lease: checkedLease(properties?.lease) },
      })
      const text = `a machine is to come from ${target.source}`
      await instance.change(() => instance.recorded.commit({ kind: 'created', text }), neverAborted)
      hosts.watchAwaiting(instance)
      return await describeInstance(instance)
    },
    giveUpTarget: async (key, from) => {
      const instance = awaiting(host, key)
      if (from !== undefined && instance.record.current === State.AWAITING)
        await moves().checkSource(instance, from)
      await giveUp(instance)
    },
    startMigration: (request, from) => moves().start(awaiting(host, request.us?.vmName ?? ''), request, from),
    fenceVolume: (request, from, signal) => fenceVolume(host, request, from, signal),
    settled: async () => await host.moves?.hosts?.settled(),
    handover: async function* (requests, from, how) {
      const arrival = await moves().begin(requests, from)
      const answers = new AnswerQueue<MoveResponse>()
      const send = (answer: Partial<MoveResponse>) => answers.push(MoveResponse.fromPartial(answer))
      const taken = async () => {
        const instance = awaiting(host, arrival.key)
        await instance.change(() => arrival.take(instance, send, how), how.signal)
      }
      answers.endWith(taken().finally(() => arrival.close()))
      yield* answers.all(how.signal)
    },
  }
}

function awaiting({ instances }: Pick<MovingHost, 'instances'>, key: string): MachineInstance {
  const instance = instances.get(specKey(key))
  if (instance !== undefined) return instance
  throw new AgentError(
    'NOT_FOUND',
    `instance ${key}: not found, want EnsureInstance with migration_target before`,
  )
}

async function fenceVolume(
  { volumes }: MovingHost,
  { us, key, lookOnly }: FenceVolumeRequest,
  from: string,
  signal: AbortSignal,
): Promise<FenceVolumeResponse> {
  if (us === undefined || !isOf(from, us))
    throw new AgentError('PERMISSION_DENIED', `us.pod_name: not of host ${from}`)
  if (volumes !== undefined) {
    const sizeBytes = lookOnly ? BigInt(await volumes.look(us, key, { peer: from })) : 0n
    const reach = lookOnly ? {} : await volumes.fence(us, key, { peer: from }, signal)
    return { ...FenceVolumeResponse.create(), sizeBytes, ...reach }
  }
  throw new AgentError('FAILED_PRECONDITION', 'no disks for other hosts are here, want controllers in [host]')
}

async function giveUp(instance: MachineInstance): Promise<void> {
  const checkAwaiting = () => {
    if (instance.record.current === State.AWAITING) return
    throw new AgentError('PERMISSION_DENIED', `instance ${instance.key}: awaits no machine`)
  }
  // Not after the changes that a machine is in.
  checkAwaiting()
  await instance.change(async () => {
    checkAwaiting()
    await instance.finishRemoval()
  }, neverAborted)
}

async function knownTarget(
  instance: MachineInstance,
  target: MigrationTarget,
  caller: Caller,
): Promise<Instance> {
  const { key, record } = instance
  if (!isVisible(instance, caller))
    throw new AgentError('ALREADY_EXISTS', `instance ${key}: the key is taken`)
  if (record.target?.source === target.source) return await describeInstance(instance)
  const present = record.target === undefined ? 'is no target of a move' : `awaits ${record.target.source}`
  throw new AgentError('FAILED_PRECONDITION', `instance ${key}: ${present}, want it removed before`)
}
