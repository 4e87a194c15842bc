import type { Hook, Hooks, Mount, Spec } from '../gen/oci.ts'
import { type Json, omitEmpty } from './json.ts'
import { linuxConfig } from './linux-config.ts'
import { processConfig } from './process-config.ts'

/** What the OCI runtime specification calls this version, for a spec that names none. */
export const DEFAULT_VERSION = '1.0.2'

/**
 * The runtime's `config.json` for a spec message (behaviour spec, section D.2): a plain conversion that decides
 * nothing, of a spec that was checked.
 */
export function runtimeConfig(spec: Spec): Json {
  return {
    ociVersion: spec.Version === '' ? DEFAULT_VERSION : spec.Version,
    ...omitEmpty({
      process: spec.Process && processConfig(spec.Process),
      root: spec.Root && { path: spec.Root.Path, readonly: spec.Root.Readonly },
      hostname: spec.Hostname,
      mounts: spec.Mounts.map(mountConfig),
      hooks: spec.Hooks && hooksConfig(spec.Hooks),
      annotations: spec.Annotations,
      linux: spec.Linux && linuxConfig(spec.Linux),
    }),
  }
}

function mountConfig(mount: Mount): Json {
  const { destination, source, type, options } = mount
  return { destination, ...omitEmpty({ source, type, options }) }
}

function hooksConfig(hooks: Hooks): Json {
  return omitEmpty({
    prestart: hooks.Prestart.map(hookConfig),
    createRuntime: hooks.CreateRuntime.map(hookConfig),
    createContainer: hooks.CreateContainer.map(hookConfig),
    startContainer: hooks.StartContainer.map(hookConfig),
    poststart: hooks.Poststart.map(hookConfig),
    poststop: hooks.Poststop.map(hookConfig),
  })
}

function hookConfig(hook: Hook): Json {
  const timeout = hook.Timeout > 0n ? hook.Timeout : undefined
  return { path: hook.Path, ...omitEmpty({ args: hook.Args, env: hook.Env, timeout }) }
}
