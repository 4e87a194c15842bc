import type { Hook, Hooks } from '../gen/oci.ts'
import { checkAbsolutePath, checkText, invalidField } from './check/check-field.ts'

export type GuestHooks = Readonly<Record<GuestHookType, readonly Hook[]>>

export type GuestHookType = (typeof GUEST_HOOK_TYPES)[number]

export const GUEST_HOOK_TYPES = ['prestart', 'poststart', 'poststop'] as const

const DEFAULT_TIMEOUT_SECONDS = 10n

export interface SplitHooks {
  readonly runtime: Hooks
  /** The agent runs them, because a runtime ends the container when one fails or is missing. */
  readonly startContainer: readonly Hook[]
  /** The agent runs them, because runtimes run them at different moments, and end the container when a hook fails. */
  readonly poststart: readonly Hook[]
}

/** The hooks of a spec followed by those of the guest, each with a timeout. */
export function splitHooks(requested: Hooks | undefined, guest: GuestHooks): SplitHooks {
  const all = (own: readonly Hook[] = [], added: readonly Hook[] = []) => [...own, ...added].map(withTimeout)
  return {
    runtime: {
      Prestart: all(requested?.Prestart, guest.prestart),
      CreateRuntime: all(requested?.CreateRuntime),
      CreateContainer: all(requested?.CreateContainer),
      StartContainer: [],
      Poststart: [],
      Poststop: all(requested?.Poststop, guest.poststop),
    },
    startContainer: all(requested?.StartContainer),
    poststart: all(requested?.Poststart, guest.poststart),
  }
}

function withTimeout(hook: Hook): Hook {
  return hook.Timeout > 0n ? hook : { ...hook, Timeout: DEFAULT_TIMEOUT_SECONDS }
}

/**
 * Throws INVALID_ARGUMENT, naming the field, for a hook that cannot run, which would otherwise fail only when the
 * container is half created. A timeout of 0 means none.
 */
export function checkHooks(hooks: Hooks): void {
  const kinds: readonly (readonly [string, readonly Hook[]])[] = Object.entries(hooks)
  for (const [kind, list] of kinds) for (const hook of list) checkHook(`Hooks.${kind}`, hook)
}

function checkHook(field: string, { Path: path, Args: args, Env: env, Timeout: timeout }: Hook): void {
  checkAbsolutePath(`${field}.Path`, path)
  for (const arg of args) checkText(`${field}.Args`, arg)
  for (const entry of env) checkText(`${field}.Env`, entry)
  if (timeout < 0n) throw invalidField(`${field}.Timeout`, `${timeout} s, want at least 0`)
}
