import type { AgentServiceDefinition, ReadStreamRequest, ReadStreamResponse } from '../../gen/agent.ts'
import { Empty } from '../../gen/google/protobuf/empty.ts'
import type { GuestHandlers } from '../../handlers/guest/guest.ts'
import type { NetworkHandlers } from '../../handlers/network/network.ts'
import type { SandboxHandlers } from '../../handlers/sandbox/sandbox.ts'
import type { StorageHandlers } from '../../handlers/storage/storage.ts'
import { encodeBytesField } from '../../rpc/bytes-field.ts'
import type { Encoded } from '../../rpc/method.ts'
import { type Call, cancellable, finishing, type ServiceEntries, streaming, unimplemented } from './entry.ts'
import { networkEntries } from './network-entries.ts'

/** What the calls of `grpc.AgentService` end up in. */
export interface ServiceHandlers {
  readonly sandbox: SandboxHandlers
  readonly guest: GuestHandlers
  readonly storage: Pick<StorageHandlers, 'updateEphemeral'>
  readonly network: NetworkHandlers
}

/**
 * `grpc.AgentService`, one entry for each of its RPCs. A hang-up cancels reads and waits, and makes creations undo
 * themselves; what starts, signals, updates or removes runs to its end.
 */
export function agentEntries(handlers: ServiceHandlers): ServiceEntries<typeof AgentServiceDefinition> {
  const { sandbox, guest, storage, network } = handlers
  return {
    createSandbox: cancellable(empty(sandbox.createSandbox)),
    destroySandbox: finishing(empty(sandbox.destroySandbox)),

    createContainer: cancellable(empty(sandbox.createContainer)),
    startContainer: finishing(empty(sandbox.startContainer)),
    removeContainer: finishing(empty(sandbox.removeContainer)),
    updateContainer: finishing(empty(sandbox.updateContainer)),
    statsContainer: cancellable((request, call) => sandbox.statsContainer(request, call.signal)),
    pauseContainer: finishing(empty(sandbox.pauseContainer)),
    resumeContainer: finishing(empty(sandbox.resumeContainer)),
    execProcess: cancellable(empty(sandbox.execProcess)),
    signalProcess: finishing(empty(sandbox.signalProcess)),
    waitProcess: cancellable(async (request, call) => {
      const exit = await sandbox.waitProcess(request, call.signal)
      call.onDelivered((written) => {
        if (written) exit.forget()
      })
      return { status: exit.status }
    }),

    getOOMEvent: cancellable(async (request, call) => {
      const { containerId, requeue } = await sandbox.getOomEvent(request, call.signal)
      call.onDelivered((written) => {
        if (!written) requeue()
      })
      return { containerId }
    }),

    writeStdin: streaming(async (request, call) => ({ len: await sandbox.writeStdin(request, call.signal) })),
    readStdout: streaming(reading(sandbox.readStdout), { encode: encodeRead }),
    readStderr: streaming(reading(sandbox.readStderr), { encode: encodeRead }),
    closeStdin: finishing(empty(sandbox.closeStdin)),
    ttyWinResize: finishing(empty(sandbox.ttyWinResize)),

    updateEphemeralMounts: finishing(
      empty((request, signal) => storage.updateEphemeral(request.storages, signal)),
    ),
    removeStaleVirtiofsShareMounts: cancellable(empty(sandbox.removeStaleShareMounts)),
    getDiagnosticData: cancellable(async (request, call) => ({
      data: await sandbox.getDiagnosticData(request, call.signal),
    })),
    getGuestDetails: cancellable((request, call) => guest.details(request, call.signal)),
    onlineCPUMem: cancellable(empty(sandbox.onlineCpuMem)),
    memHotplugByProbe: finishing(empty(guest.memHotplugByProbe)),
    setGuestDateTime: finishing(empty(guest.setDateTime)),
    reseedRandomDev: finishing(empty(guest.reseedRandom)),
    addSwap: cancellable(empty(guest.addSwap)),
    addSwapPath: finishing(empty(guest.addSwapPath)),
    getMetrics: cancellable((request, call) => guest.metrics(request, call.signal)),
    getVolumeStats: cancellable((request, call) => guest.volumeStats(request, call.signal)),
    resizeVolume: cancellable(empty(guest.resizeVolume)),

    ...networkEntries(network),
    memAgentMemcgSet: unimplemented('MemAgentMemcgSet'),
    memAgentCompactSet: unimplemented('MemAgentCompactSet'),
    copyFile: unimplemented('CopyFile'),
    setPolicy: unimplemented('SetPolicy'),
  }
}

/** A handler without a result as a call that answers `google.protobuf.Empty`. */
function empty<Request>(
  handle: (request: Request, signal: AbortSignal) => Promise<void>,
): (request: Request, call: { readonly signal: AbortSignal }) => Promise<Empty> {
  return async (request, call) => {
    await handle(request, call.signal)
    return Empty.create()
  }
}

/** A read as a call: output whose answer nobody got is not lost. */
function reading(
  read: SandboxHandlers['readStdout'],
): (request: ReadStreamRequest, call: Call) => Promise<ReadStreamResponse> {
  return async (request, call) => {
    const { data, unread } = await read(request, call.signal)
    call.onDelivered((written) => {
      if (!written) unread()
    })
    return { data }
  }
}

/** A `ReadStreamResponse`. */
function encodeRead({ data }: ReadStreamResponse): Encoded {
  return encodeBytesField(1, data)
}
