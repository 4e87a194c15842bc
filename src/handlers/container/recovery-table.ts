import { ContainerPayload_Phase as ContainerPhase } from '../../gen/state/container.ts'
import { SandboxPayload_Phase as SandboxPhase } from '../../gen/state/sandbox.ts'

/** A question to the broker, the records, the OCI runtime or the cgroup, whose answer decides on an action. */
export type Question = 'sent again' | 'answered' | 'made' | 'started' | 'frozen'

/** What an agent does with a container of the previous agent. */
export type ContainerAction =
  | 'undo'
  | 'finish the creation'
  | 'go on'
  | 'finish the start'
  | 'leave to the call'
  | 'thaw, leave to the call'
  | 'finish the removal'
  | 'remove'

export type ProcessAction = 'go on' | 'end'

export type SandboxAction = 'undo' | 'go on' | 'leave to the call' | 'stop' | 'remove all'

/** An action, or a question with a choice for each answer. */
export type Choice<Action extends string> =
  | Action
  | { readonly ask: Question; readonly yes: Choice<Action>; readonly no: Choice<Action> }

type Table<Phase extends number | string, Action extends string> = Readonly<
  Record<Exclude<Phase, 0>, Choice<Action>>
>

/** The action for each phase that the previous agent has recorded (docs/recovery.md). */
export const RECOVERY: {
  readonly sandbox: Table<SandboxPhase, SandboxAction>
  readonly container: Table<ContainerPhase, ContainerAction>
  readonly process: Table<'adding' | 'added', ProcessAction>
} = {
  sandbox: {
    [SandboxPhase.CREATING]: 'undo',
    [SandboxPhase.ACTIVE]: 'go on',
    [SandboxPhase.DESTROYING]: 'leave to the call',
    [SandboxPhase.DESTROYED]: 'stop',
    [SandboxPhase.LOST]: 'remove all',
  },
  container: {
    [ContainerPhase.CREATING]: {
      ask: 'sent again',
      yes: { ask: 'made', yes: 'finish the creation', no: 'undo' },
      no: 'undo',
    },
    [ContainerPhase.CREATED]: 'go on',
    [ContainerPhase.STARTING]: { ask: 'started', yes: 'finish the start', no: 'leave to the call' },
    [ContainerPhase.RUNNING]: 'go on',
    [ContainerPhase.PAUSING]: { ask: 'frozen', yes: 'go on', no: 'thaw, leave to the call' },
    [ContainerPhase.PAUSED]: 'go on',
    [ContainerPhase.RESUMING]: { ask: 'frozen', yes: 'leave to the call', no: 'go on' },
    [ContainerPhase.REMOVING]: {
      ask: 'sent again',
      yes: { ask: 'answered', yes: 'finish the removal', no: 'leave to the call' },
      no: 'remove',
    },
  },
  process: {
    adding: { ask: 'sent again', yes: { ask: 'made', yes: 'go on', no: 'end' }, no: 'end' },
    added: 'go on',
  },
}

/** The action for a phase. Asks only the questions that lead to it. Throws for an unknown phase. */
export async function chosen<Action extends string>(
  table: { readonly [phase: string]: Choice<Action> },
  phase: number | string,
  ask: (question: Question) => boolean | Promise<boolean>,
): Promise<Action> {
  let choice = table[phase]
  while (typeof choice === 'object') choice = (await ask(choice.ask)) ? choice.yes : choice.no
  if (choice === undefined) throw new Error(`phase ${phase}: unknown`)
  return choice
}
