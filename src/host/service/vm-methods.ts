import { AgentError } from '../../base/errors.ts'
import { ChangeStateRequest, ChangeStateRequest_Change } from '../../gen/microvm/instance/v1/instance.ts'
import type { ConsoleIO, OOBManagementDefinition, VMControllerDefinition } from '../../gen/vm.ts'
import { bytesFieldEncoder } from '../../rpc/bytes-field.ts'
import type { Instances } from '../instance/instances.ts'
import { specKey } from '../spec/spec-key.ts'
import { invalid, pieces } from './instance-methods.ts'
import type { ServiceCall, ServiceMethods } from './rpc.ts'

/** The instance that a call of OOBManagement is about: its messages have no place for a key. */
const INSTANCE = 'instance'

/** `only` is the instance of a call that names none. */
export function outOfBandMethods(
  instances: Instances,
  only?: string,
): ServiceMethods<typeof OOBManagementDefinition> {
  return {
    // Journaled: a machine is reset again.
    reset: {
      role: 'owner',
      onDaemonDeath: 'journaled',
      handle: async (_request, call) => {
        const change = { key: instanceOf(call, only), change: ChangeStateRequest_Change.RESET }
        await instances.changeState(ChangeStateRequest.fromPartial(change), call)
        return {}
      },
    },
    console: {
      role: 'owner',
      onDaemonDeath: 'read',
      encoder: () => {
        const encode = bytesFieldEncoder(1)
        return ({ data }) => encode(data)
      },
      handleDuplex: (requests, call) =>
        connectConsole(requests, (input) => instances.console(instanceOf(call, only), input, call)),
    },
  }
}

/** Reflection tells of VMController, whose calls no daemon serves. */
export function controllerMethods(): ServiceMethods<typeof VMControllerDefinition> {
  return {
    ensureMigrationTarget: { ...ELSEWHERE, handle: refuser('EnsureMigrationTarget') },
    migrationSwitchover: { ...ELSEWHERE, handle: refuser('MigrationSwitchover') },
    runLease: {
      ...ELSEWHERE,
      // biome-ignore lint/correctness/useYield: it fails before its first answer
      handleStream: async function* () {
        await refuser('RunLease')()
      },
    },
  }
}

const ELSEWHERE = { role: 'admin', onDaemonDeath: 'read' } as const

function refuser(method: string): () => Promise<never> {
  return async () => {
    throw new AgentError(
      'UNIMPLEMENTED',
      `VMController/${method}: a daemon has none, want ./microvm controller`,
    )
  }
}

async function* connectConsole(
  requests: AsyncIterable<ConsoleIO>,
  connect: (input: AsyncIterable<Uint8Array>) => AsyncIterable<Uint8Array>,
): AsyncGenerator<ConsoleIO, void> {
  const input = async function* () {
    for await (const { data } of requests) yield data
  }
  for await (const data of connect(input())) for (const piece of pieces(data)) yield { data: piece }
}

function instanceOf({ metadata }: ServiceCall, only: string | undefined): string {
  const key = metadata(INSTANCE) ?? only
  if (key === undefined) throw invalid(`metadata ${INSTANCE}: missing, want the key of an instance`)
  return specKey(key)
}
