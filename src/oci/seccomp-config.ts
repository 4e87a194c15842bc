import { AgentError } from '../base/errors.ts'
import type { LinuxSeccomp, LinuxSeccompArg, LinuxSyscall } from '../gen/oci.ts'
import { type Json, omitEmpty } from './json.ts'

const ACTIONS = [
  'SCMP_ACT_KILL',
  'SCMP_ACT_KILL_PROCESS',
  'SCMP_ACT_KILL_THREAD',
  'SCMP_ACT_TRAP',
  'SCMP_ACT_ERRNO',
  'SCMP_ACT_TRACE',
  'SCMP_ACT_ALLOW',
  'SCMP_ACT_LOG',
  'SCMP_ACT_NOTIFY',
]

const OPERATORS = [
  'SCMP_CMP_NE',
  'SCMP_CMP_LT',
  'SCMP_CMP_LE',
  'SCMP_CMP_EQ',
  'SCMP_CMP_GE',
  'SCMP_CMP_GT',
  'SCMP_CMP_MASKED_EQ',
]

/** The `seccomp` object of `config.json`. Throws INVALID_ARGUMENT for an unknown action or operator. */
export function seccompConfig(seccomp: LinuxSeccomp): Json {
  return {
    defaultAction: oneOf(ACTIONS, seccomp.DefaultAction, 'seccomp action'),
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
    action: oneOf(ACTIONS, syscall.Action, 'seccomp action'),
    errnoRet: syscall.errnoret,
    ...omitEmpty({ args: syscall.Args.map(argConfig) }),
  }
}

function argConfig(arg: LinuxSeccompArg): Json {
  return {
    index: arg.Index,
    value: arg.Value,
    valueTwo: arg.ValueTwo,
    op: oneOf(OPERATORS, arg.Op, 'seccomp operator'),
  }
}

function oneOf(words: readonly string[], word: string, what: string): string {
  if (!words.includes(word)) throw new AgentError('INVALID_ARGUMENT', `unknown ${what} '${word}'`)
  return word
}
