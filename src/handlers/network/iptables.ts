import { neverAborted } from '../../base/abort.ts'
import { AgentError, messageOf } from '../../base/errors.ts'
import { inStep } from '../../base/step.ts'
import type { ToolResult } from '../../os/process/tools.ts'
import type { NetworkContext } from './context.ts'

type Tool = 'iptables-save' | 'iptables-restore' | 'ip6tables-save' | 'ip6tables-restore'

/** Comments may hold any bytes, and in this encoding each byte is one character. */
const RAW = 'latin1'

const TIMEOUT_MS = 5000
/** The largest set of rules; the response must fit into a message of 4 MiB. */
const MAX_BYTES = 4 * 1024 * 1024 - 4096

/** Throws INTERNAL with the tool's output. */
export async function getIptables(
  dependencies: NetworkContext,
  isIpv6: boolean,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const { stdout } = await run(dependencies, isIpv6 ? 'ip6tables-save' : 'iptables-save', [], '', signal)
  return Buffer.from(stdout, RAW)
}

/** Tests the rules first, and restores the old ones after a failure. Throws INTERNAL with the tool's output. */
export function setIptables(
  dependencies: NetworkContext,
  isIpv6: boolean,
  rules: Uint8Array,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const queue = isIpv6 ? dependencies.queues.ip6tables : dependencies.queues.iptables
  return queue.run(() => applyRules(dependencies, isIpv6, rules, signal), signal)
}

async function applyRules(
  dependencies: NetworkContext,
  isIpv6: boolean,
  rules: Uint8Array,
  signal: AbortSignal,
): Promise<Uint8Array> {
  const tool: Tool = isIpv6 ? 'ip6tables-restore' : 'iptables-restore'
  const wait = ['--wait', '5']
  await run(dependencies, tool, [...wait, '--test'], rules, signal)
  const old = await run(dependencies, isIpv6 ? 'ip6tables-save' : 'iptables-save', ['--counters'], '', signal)
  try {
    const { stdout } = await run(dependencies, tool, wait, rules, signal)
    dependencies.record.note('rpc', [
      { kind: 'iptables', subject: isIpv6 ? 'ipv6' : 'ipv4', value: `${rules.length} bytes` },
    ])
    return Buffer.from(stdout, RAW)
  } catch (error) {
    await restoreRules(dependencies, tool, old.stdout, rules)
    throw error
  }
}

/** Tables that did not exist before are emptied. */
async function restoreRules(
  dependencies: NetworkContext,
  tool: Tool,
  old: string,
  rules: Uint8Array,
): Promise<void> {
  const before = tablesOf(old)
  const emptied = tablesOf(Buffer.from(rules).toString(RAW))
    .filter((table) => !before.includes(table))
    .map((table) => `*${table}\nCOMMIT\n`)
  try {
    const input = Buffer.from(`${old}${emptied.join('')}`, RAW)
    await run(dependencies, tool, ['--wait', '5', '--counters'], input, neverAborted)
  } catch (error) {
    dependencies.log.warn('packet filter not restored', { error: messageOf(error) })
  }
}

/** The tools write a table's name as `*nat`. */
function tablesOf(rules: string): readonly string[] {
  return Array.from(rules.matchAll(/^\*(\S+)/gm), ([, name = '']) => name)
}

async function run(
  { os }: NetworkContext,
  tool: Tool,
  options: readonly string[],
  stdin: string | Uint8Array,
  signal: AbortSignal,
): Promise<ToolResult> {
  const path =
    (await os.files.stat(`/usr/sbin/${tool}`)) === undefined ? `/sbin/${tool}` : `/usr/sbin/${tool}`
  const limits = { timeoutMs: TIMEOUT_MS, maxOutputBytes: MAX_BYTES, encoding: RAW, signal } as const
  const result = await inStep('program', path, () => os.tools.run([path, ...options], { stdin, ...limits }))
  if (result.exitCode !== 0) {
    const output = Buffer.from(result.stderr.trim() || result.stdout.trim(), RAW).toString()
    const text = `${tool}: exit code ${result.exitCode}`
    // The output quotes the request's rules, which must not be logged.
    throw new AgentError('INTERNAL', `${text}: ${output}`, { loggedMessage: text })
  }
  if (result.stdout.length > MAX_BYTES)
    throw new AgentError('INTERNAL', `${tool}: more than ${MAX_BYTES} bytes of output`)
  return result
}
