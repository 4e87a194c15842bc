#pragma once

#define AGENT_DIRECTORY "/usr/lib/microvm-agent"

/*
 * What init mode runs. The heap limits keep the agent small in a small guest: a small young generation makes V8
 * collect before it grows. SIGUSR1 would open Node's debugger on the loopback of all containers.
 */
#define AGENT_COMMAND \
  { \
    AGENT_DIRECTORY "/node", "--max-semi-space-size=1", "--max-old-space-size=96", "--disable-sigusr1", \
      AGENT_DIRECTORY "/agent.cjs", NULL \
  }
