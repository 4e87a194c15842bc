import type { Stdio } from '../../client/container/attach.ts'
import { writeWhole } from '../../client/container/stdio.ts'
import type { DaemonClient } from '../../client/daemon/daemon-client.ts'
import { describedMessage } from '../../client/json/described-types.ts'
import { decodeJson } from '../../client/json/to-json.ts'
import { plainText } from '../../client/output/text.ts'
import type { Interruptions } from '../../client/terminal/interruptions.ts'
import { Instance, State } from '../../gen/microvm/instance/v1/instance.ts'
import type { Reporter } from '../run/reporter.ts'

/** What a command for machines of the daemon works with. */
export interface MachineContext {
  readonly name: string
  /** By the name of an option (a flag has an empty value) or of an argument. */
  readonly values: ReadonlyMap<string, string>
  readonly env: Readonly<Record<string, string | undefined>>
  readonly stdio: Stdio
  readonly reporter: Reporter
  readonly interruptions: Interruptions
  /** Fires when a signal ends the command. */
  readonly signal: AbortSignal
  /** Connects to the daemon at the first call. The tool closes the connection. */
  daemon(): Promise<DaemonClient>
}

/** Returns the exit status; undefined means 0. */
export type RunMachineCommand = (context: MachineContext) => Promise<number | undefined>

const DEFAULT_TIMEOUT_SECONDS = 120

/** How long a call may take, after the time that the guest is given. */
export function timeoutMs({ values }: Pick<MachineContext, 'values'>, graceMs = 0): number {
  return Number(values.get('timeout') ?? DEFAULT_TIMEOUT_SECONDS) * 1000 + graceMs
}

/** `--grace` in milliseconds; 0 lets the daemon choose. */
export function graceMs({ values }: MachineContext): number {
  return Number(values.get('grace') ?? 0) * 1000
}

export function argument({ values }: MachineContext, name: string): string {
  return values.get(name) ?? ''
}

/** Waits for a changing call, and shows on a terminal that it does. Prints the instance's state, or all of it as JSON. */
export async function changeInstance(
  context: MachineContext,
  doing: string,
  change: (calls: DaemonClient['calls']) => Promise<Instance>,
): Promise<undefined> {
  const { calls } = await context.daemon()
  const endWait = context.reporter.wait(doing)
  const instance = await change(calls).finally(endWait)
  if (context.values.has('json')) await printJson(context, instanceJson(instance))
  else await print(context, `${plainText(`${instance.properties?.key ?? ''}: ${stateText(instance)}`)}\n`)
  for (const warning of instance.warnings) context.reporter.progress(plainText(warning))
}

/** Such as `running`, or `stopped (the guest panicked)`. */
export function stateText({ reason, state }: Pick<Instance, 'reason' | 'state'>): string {
  return `${stateWord(state)}${reason === '' ? '' : ` (${reason})`}`
}

export function stateWord(state: State): string {
  const [name = 'unknown'] = Object.entries(State).find(([, value]) => value === state) ?? []
  return name.toLowerCase()
}

export function instanceJson(instance: Instance): unknown {
  return messageJson('Instance', Instance, instance)
}

/** `name`: of the message in microvm.instance.v1. */
export function messageJson<Message>(
  name: string,
  type: { encode(message: Message): { finish(): Uint8Array } },
  message: Message,
): unknown {
  return decodeJson(describedMessage(`microvm.instance.v1.${name}`), type.encode(message).finish())
}

export async function print({ stdio }: Pick<MachineContext, 'stdio'>, text: string): Promise<void> {
  await writeWhole(stdio.stdout, text)
}

export async function printJson(context: Pick<MachineContext, 'stdio'>, value: unknown): Promise<void> {
  await print(context, `${JSON.stringify(value)}\n`)
}
