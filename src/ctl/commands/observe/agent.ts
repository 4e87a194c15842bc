import { open } from 'node:fs/promises'
import { fileFailure } from '../../../client/files/file-failure.ts'
import type { Column } from '../../../client/output/table.ts'
import { ageText, bytesText, plainText } from '../../../client/output/text.ts'
import {
  type Call,
  type Capability,
  Capability_Kind,
  type GetStacksResponse,
  ReadProfileRequest_Kind,
} from '../../../gen/microvm/agent/v1/introspection.ts'
import { agentCalls, type Introspection, introspectionCalls } from '../../clients.ts'
import { CommandFailure, type Context, EXIT } from '../../command.ts'
import { enumName } from '../../output/enums.ts'
import { print, printAs, printRows } from '../../output/print.ts'

const CALL_COLUMNS: readonly Column<Call>[] = [
  { title: 'CALL', text: ({ method }) => method.replace(/^.*[/]/, '') },
  { title: 'AGE', text: ({ ageMs }) => ageText(ageMs), right: true },
  { title: 'STEP', text: ({ step }) => step },
  { title: 'SINCE', text: ({ stepAgeMs }) => ageText(stepAgeMs), right: true, drop: 2 },
  { title: 'CONTAINER', text: ({ containerId }) => containerId, drop: 1 },
  { title: 'PROCESS', text: ({ execId }) => execId, drop: 3 },
  { title: 'FROM', text: ({ connection, framing }) => `${connection} (${framing})`, drop: 4 },
]

export async function runCalls(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const { calls } = await introspection.listCalls({})
  await printRows(context, CALL_COLUMNS, calls)
}

export type ShownCapability = Omit<Capability, 'kind'> & { readonly kind: string }

const KIND_NAMES: Readonly<Record<string, string>> = {
  RPC: 'call',
  STORAGE_DRIVER: 'storage',
  DEVICE_TYPE: 'device',
  KERNEL: 'kernel',
  TOOL: 'program',
  FEATURE: 'agent',
}

const CAPABILITY_COLUMNS: readonly Column<ShownCapability>[] = [
  { title: 'KIND', text: ({ kind }) => KIND_NAMES[kind] ?? '', drop: 2 },
  { title: 'NAME', text: ({ name }) => name },
  { title: 'THERE', text: ({ enabled }) => (enabled ? 'yes' : 'no') },
  { title: 'WHY', text: ({ detail, enabled, reason }) => (enabled ? detail : reason), drop: 1 },
]

export async function runCapabilities(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const { capabilities } = await shownCapabilities(introspection)
  const isShown = ({ enabled }: ShownCapability) => !(enabled && context.values.flag('missing'))
  await printRows(context, CAPABILITY_COLUMNS, capabilities.filter(isShown))
}

export async function shownCapabilities(
  introspection: Pick<Introspection, 'getCapabilities'>,
): Promise<{ readonly capabilities: readonly ShownCapability[] }> {
  const { capabilities } = await introspection.getCapabilities({})
  return {
    capabilities: capabilities.map((each) => ({ ...each, kind: enumName(Capability_Kind, each.kind) })),
  }
}

export async function runMetrics(context: Context): Promise<undefined> {
  const agent = await agentCalls(context)
  const { metrics } = await agent.getMetrics({})
  await printAs(context, { text: metrics, value: { metrics } })
}

export async function runStacks(context: Context): Promise<undefined> {
  const introspection = await introspectionCalls(context)
  const stacks = await introspection.getStacks({})
  await printAs(context, { text: stacksText(stacks), value: stacks })
}

export function stacksText({ loopResources, threads }: GetStacksResponse): string {
  const of = threads.flatMap(({ kernelStack, name, pid, state, threadId }) => [
    plainText(`${pid}/${threadId} ${name}: ${state}`),
    ...kernelStack.map((frame) => plainText(`    ${frame}`)),
  ])
  const waits = loopResources.map(({ count, type }) => plainText(`    ${count} ${type}`))
  return `${[...of, 'the event loop waits for', ...waits].join('\n')}\n`
}

const PROFILES = {
  cpu: { kind: ReadProfileRequest_Kind.CPU, file: 'agent.cpuprofile' },
  heap: { kind: ReadProfileRequest_Kind.HEAP, file: 'agent.heapsnapshot' },
} as const

export async function runProfile(context: Context): Promise<undefined> {
  const { values } = context
  const { file, kind } = values.argument('KIND') === 'heap' ? PROFILES.heap : PROFILES.cpu
  const path = values.argument('FILE') || file
  const durationMs = (values.number('seconds', 1, 60) ?? 5) * 1000
  const failed = (error: unknown): never => {
    throw new CommandFailure(EXIT.cannotRun, fileFailure(path, error), { cause: error })
  }
  // Opened before the profile costs the agent time. A heap snapshot may hold secrets.
  const target = await open(path, 'w', 0o600).catch(failed)
  try {
    const introspection = await introspectionCalls(context)
    const first = await introspection.readProfile({ kind, durationMs })
    const { id, sizeBytes } = first
    try {
      let { data } = first
      for (let offset = 0n; ; ) {
        await target.write(data).catch(failed)
        offset += BigInt(data.length)
        if (offset >= sizeBytes || data.length === 0) break
        data = (await introspection.readProfile({ id, offset })).data
      }
    } finally {
      await introspection.readProfile({ id, discard: true }).catch(() => {})
    }
    await print(context, `${path}: ${bytesText(sizeBytes)}, for Chrome's developer tools\n`)
  } finally {
    await target.close()
  }
}
