import type { LinuxSeccomp, LinuxSeccompArg, LinuxSyscall } from '../gen/oci.ts'
import { type Json, omitEmpty } from './json.ts'

/** The `seccomp` object of `config.json`. */
export function seccompConfig(seccomp: LinuxSeccomp): Json {
  return {
    defaultAction: seccomp.DefaultAction,
    ...omitEmpty({
      architectures: seccomp.Architectures,
      flags: seccomp.Flags,
      syscalls: seccomp.Syscalls.map(syscallConfig),
    }),
  }
}

/** An errno of 0 is not the same as none, which means EPERM. */
function syscallConfig(syscall: LinuxSyscall): Json {
  return {
    names: syscall.Names,
    action: syscall.Action,
    errnoRet: syscall.errnoret,
    ...omitEmpty({ args: syscall.Args.map(argConfig) }),
  }
}

function argConfig(arg: LinuxSeccompArg): Json {
  return {
    index: arg.Index,
    value: arg.Value,
    valueTwo: arg.ValueTwo,
    op: arg.Op,
  }
}
