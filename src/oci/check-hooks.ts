import type { Hook, Hooks } from '../gen/oci.ts'
import { checkAbsolutePath, checkText, invalidField } from './check-field.ts'

/**
 * Throws INVALID_ARGUMENT, naming the field, for a hook that cannot be run: each would be found out only when its turn
 * comes, with the container half made. A time-out of 0 is none.
 */
export function checkHooks(hooks: Hooks): void {
  const kinds: readonly (readonly [string, readonly Hook[]])[] = Object.entries(hooks)
  for (const [kind, list] of kinds) for (const hook of list) checkHook(`Hooks.${kind}`, hook)
}

function checkHook(field: string, { Path: path, Args: args, Env: env, Timeout: timeout }: Hook): void {
  checkAbsolutePath(`${field}.Path`, path)
  for (const arg of args) checkText(`${field}.Args`, arg)
  for (const entry of env) checkText(`${field}.Env`, entry)
  if (timeout < 0n) throw invalidField(`${field}.Timeout`, `${timeout} s is less than nothing`)
}
