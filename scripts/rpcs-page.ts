import type { DeclaredMethod } from '../src/agent/service/rpc.ts'
import { declaredMethods } from '../src/agent/service/services.ts'
import { REQUESTS } from '../src/gen/message-fields.ts'
import { serviceDependencies } from '../test/support/agent/service-dependencies.ts'

const HEAD = `| RPC | Answered | Turn | Reserve | Policy's rule | Hang-up or deadline | Agent dies | Log |
|---|---|---|---|---|---|---|---|
`
const RESERVE = { ordinary: '', waiting: 'half', reserved: 'all' } as const

/** The text of docs/rpcs.md, whose table, at its end, is made anew from the declarations. */
export async function rpcsPage(page: string): Promise<string> {
  const methods = declaredMethods(await serviceDependencies())
  return `${page.slice(0, page.indexOf('| RPC |'))}${HEAD}${methods.map(rowOf).join('')}`
}

/** A cell is empty where the page tells what is usual; nothing for a method that is not declared yet. */
function rowOf({ name, rpc }: Partial<DeclaredMethod<unknown, unknown>>): string {
  if (name === undefined || rpc === undefined) return ''
  const gate = rpc.gate === 'open' ? 'at once' : ''
  const { turn, share, onHangup, recovery, logLevel } = rpc
  const cells = [
    `\`${name}\``,
    gate,
    turn,
    RESERVE[share],
    ruleOf(name, rpc.rule),
    onHangup,
    recovery,
    logLevel === 'info' ? '' : logLevel,
  ]
  return `|${cells.map((cell) => (cell === '' ? ' |' : ` ${cell} |`)).join('')}\n`
}

function ruleOf(method: string, rule: DeclaredMethod<unknown, unknown>['rpc']['rule']): string {
  if (rule === 'none') return 'none'
  const message = typeof rule === 'object' ? rule.message : (REQUESTS[method] ?? '')
  const name = message.slice(message.lastIndexOf('.') + 1)
  if (rule === 'itself') return `\`${name}\`, by its function`
  return name === `${method.slice(method.indexOf('/') + 1)}Request` ? '' : `\`${name}\``
}
