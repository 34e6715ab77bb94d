/* A program of somebody else: one header, one archive. */
#include <atom/atom.h>

#include <stdio.h>

int main(void)
{
    graph_config config;
    if (graph_preset_get("gpt2-124m", &config) != ATOM_OK)
        return 1;
    printf("%llu\n", (unsigned long long)graph_gpt2_params(&config));
    return 0;
}
