import { ContainerPayload_Phase as ContainerPhase } from '../../src/gen/state/container.ts'
import { SandboxPayload_Phase as SandboxPhase } from '../../src/gen/state/sandbox.ts'
import type {
  Choice,
  ContainerAction,
  ProcessAction,
  Question,
  SandboxAction,
} from '../../src/handlers/container/recovery-table.ts'
import { RECOVERY } from '../../src/handlers/container/recovery-table.ts'

/** One path through the questions of a phase. */
export interface RecoveryRow<Action> {
  readonly phase: string
  readonly facts: readonly (readonly [question: Question, isSo: boolean])[]
  readonly action: Action
}

/** The rows of a table of {@link RECOVERY}. `names` maps the phases of a table that has numbers. */
function recoveryRows<Action extends string>(
  table: { readonly [phase: string]: Choice<Action> },
  names: Readonly<Record<string, number | string>>,
): readonly RecoveryRow<Action>[] {
  return Object.entries(names).flatMap(([phase, key]) => {
    const choice = table[key]
    return choice === undefined ? [] : ways(choice).map((way) => ({ phase, ...way }))
  })
}

function ways<Action extends string>(
  choice: Choice<Action>,
  facts: RecoveryRow<Action>['facts'] = [],
): readonly Omit<RecoveryRow<Action>, 'phase'>[] {
  if (typeof choice === 'string') return [{ facts, action: choice }]
  return [
    ...ways(choice.yes, [...facts, [choice.ask, true]]),
    ...ways(choice.no, [...facts, [choice.ask, false]]),
  ]
}

export const SANDBOX_ROWS = recoveryRows<SandboxAction>(RECOVERY.sandbox, SandboxPhase)
export const CONTAINER_ROWS = recoveryRows<ContainerAction>(RECOVERY.container, ContainerPhase)
export const PROCESS_ROWS = recoveryRows<ProcessAction>(RECOVERY.process, {
  adding: 'adding',
  added: 'added',
})

const FACTS: Readonly<Record<Question, readonly [yes: string, no: string]>> = {
  'sent again': ['its call is sent again', 'its call is gone'],
  answered: ['its outcome is recorded', 'no outcome is recorded'],
  made: ['the runtime has made the process', 'the process, or its terminal, is missing'],
  started: ['the program is started', 'the program is not started'],
  frozen: ['the cgroup is frozen', 'the cgroup is not frozen'],
}

const ACTIONS: Readonly<Record<SandboxAction | ContainerAction | ProcessAction, string>> = {
  undo: 'is undone',
  'finish the creation': 'is finished',
  'go on': 'goes on',
  'finish the start': 'goes on, with the poststart hooks that are left',
  'leave to the call': 'goes on; its call begins anew',
  'thaw, leave to the call': 'is thawed; its call begins anew',
  'finish the removal': 'is gone before the call is answered',
  remove: 'is removed by the agent',
  end: 'is killed',
  stop: 'is gone; the agent stops once the calls that are sent again have their answers',
  'remove all': 'is removed, with all containers',
}

const HEAD = '| What | Phase | If | Then it |\n|---|---|---|---|\n'

export function recoveryTable(): string {
  const rows = [
    ...SANDBOX_ROWS.map((row) => rowOf('sandbox', row)),
    ...CONTAINER_ROWS.map((row) => rowOf('container', row)),
    ...PROCESS_ROWS.map((row) => rowOf('added process', row)),
  ]
  return `${HEAD}${rows.join('\n')}`
}

function rowOf(what: string, { phase, facts, action }: RecoveryRow<keyof typeof ACTIONS>): string {
  const where = facts.map(([question, isSo]) => FACTS[question][isSo ? 0 : 1]).join(' and ')
  return `| ${what} | ${phase.toLowerCase()} |${where === '' ? ' ' : ` ${where} `}| ${ACTIONS[action]} |`
}
